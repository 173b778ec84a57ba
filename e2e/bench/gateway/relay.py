"""The real relay on loopback: `python -m e2e.bench.gateway.relay KEY PORT ENGINES_PORT METRICS_PORT`."""

import argparse
import logging
from pathlib import Path

import uvloop

from e2e.bench.gateway.testbed import HOST
from headrace_gateway.relay.__main__ import Settings, serve


def main() -> None:
    """Serve as the relay until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("key", type=Path)
    parser.add_argument("ports", type=int, nargs=3)
    chosen = parser.parse_args()
    port, engines, metrics = chosen.ports
    logging.basicConfig(level=logging.INFO)
    settings = Settings(
        key=chosen.key, port=port, engines_port=engines, metrics_address=HOST, metrics_port=metrics
    )
    uvloop.run(serve(settings))


if __name__ == "__main__":
    main()
