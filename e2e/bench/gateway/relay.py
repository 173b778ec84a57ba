"""The real relay on loopback: `python -m e2e.bench.gateway.relay KEY PORT ENGINES_PORT METRICS_PORT`."""

import argparse
import logging

import uvloop

from e2e.bench.gateway.testbed import HOST
from headrace_gateway.relay.__main__ import serve
from headrace_gateway.settings import Settings


def main() -> None:
    """Serve as the relay until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("ports", type=int, nargs=3)
    chosen = parser.parse_args()
    port, engines, metrics = chosen.ports
    logging.basicConfig(level=logging.INFO)
    settings = Settings(
        address=HOST, http_port=metrics, gateway_key=chosen.key, relay_port=port, engines_port=engines
    )
    uvloop.run(serve(settings))


if __name__ == "__main__":
    main()
