"""Run the attacks: `python -m e2e.bench.attacks`."""

import sys

from e2e.bench.attacks.study import main

if __name__ == "__main__":
    sys.exit(main())
