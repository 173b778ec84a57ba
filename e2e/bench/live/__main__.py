"""Run the policies on real engines: `python -m e2e.bench.live`."""

import sys

from e2e.bench.live.study import main

if __name__ == "__main__":
    sys.exit(main())
