"""The real relay on loopback: `python -m e2e.bench.gateway.relay KEY FOLDER METRICS_PORT`."""

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
    parser.add_argument("folder")
    parser.add_argument("port", type=int)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    settings = Settings(
        address=HOST, http_port=chosen.port, gateway_key=chosen.key, relay_folder=chosen.folder
    )
    uvloop.run(serve(settings))


if __name__ == "__main__":
    main()
