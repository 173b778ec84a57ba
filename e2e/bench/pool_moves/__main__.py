"""Run the study: `python -m e2e.bench.pool_moves`."""

import sys

from e2e.bench.pool_moves.study import main

if __name__ == "__main__":
    sys.exit(main())
