"""Run the gateway's benchmark: `python -m e2e.bench.gateway`."""

import sys

from e2e.bench.gateway.study import main

if __name__ == "__main__":
    sys.exit(main())
