"""Run the simulator's validation: `python -m e2e.bench.validation`."""

from e2e.bench.validation.study import main

if __name__ == "__main__":
    main()
