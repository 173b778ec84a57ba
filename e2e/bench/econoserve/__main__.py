"""Run the study of EconoServe: `python -m e2e.bench.econoserve`."""

from e2e.bench.econoserve.study import main

if __name__ == "__main__":
    main()
