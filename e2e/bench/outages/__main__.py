"""Run the outages: `python -m e2e.bench.outages`."""

import sys

from e2e.bench.outages.study import main

if __name__ == "__main__":
    sys.exit(main())
