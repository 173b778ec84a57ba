"""Run the study of several pickers: `python -m e2e.bench.pickers`."""

import sys

from e2e.bench.pickers.study import main

if __name__ == "__main__":
    sys.exit(main())
