"""Run the study of DoublingBudget: `python -m e2e.bench.doubling_budget`."""

from e2e.bench.doubling_budget.study import main

if __name__ == "__main__":
    main()
