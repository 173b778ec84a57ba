"""Run the study of placement: `python -m e2e.bench.placement`."""

from e2e.bench.placement.study import main

if __name__ == "__main__":
    main()
