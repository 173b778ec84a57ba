"""Run the mutation benchmark: `python -m e2e.bench.mutations`."""

import sys

from e2e.bench.mutations.study import main

if __name__ == "__main__":
    sys.exit(main())
