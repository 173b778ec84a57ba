"""Runs the study: `python -m e2e.bench.continuation`."""

import sys

from e2e.bench.continuation.study import main

if __name__ == "__main__":
    sys.exit(main())
