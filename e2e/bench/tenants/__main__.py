"""Run the attacks by tenants alone: `python -m e2e.bench.tenants`."""

import sys

from e2e.bench.tenants.study import main

if __name__ == "__main__":
    sys.exit(main())
