"""Run the study of sharing: `python -m e2e.bench.sharing`."""

from e2e.bench.sharing.study import main

if __name__ == "__main__":
    main()
