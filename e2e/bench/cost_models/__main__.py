"""Fit the cost models: `python -m e2e.bench.cost_models`."""

from e2e.bench.cost_models.study import main

if __name__ == "__main__":
    main()
