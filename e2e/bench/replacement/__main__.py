"""Run the study: `python -m e2e.bench.replacement`."""

from e2e.bench.replacement.study import main

if __name__ == "__main__":
    main()
