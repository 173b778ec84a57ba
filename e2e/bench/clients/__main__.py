"""Run the clients' campaign: `python -m e2e.bench.clients`."""

import sys

from e2e.bench.clients.study import main

if __name__ == "__main__":
    sys.exit(main())
