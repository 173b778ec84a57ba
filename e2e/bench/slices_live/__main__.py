"""Run slices and moves on real engines: `python -m e2e.bench.slices_live`."""

import sys

from e2e.bench.slices_live.study import main

if __name__ == "__main__":
    sys.exit(main())
