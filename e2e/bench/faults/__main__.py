"""Run the fault campaign: `python -m e2e.bench.faults`."""

import sys

from e2e.bench.faults.study import main

if __name__ == "__main__":
    sys.exit(main())
