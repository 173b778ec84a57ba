"""Run the study of SCLS: `python -m e2e.bench.scls`."""

from e2e.bench.scls.study import main

if __name__ == "__main__":
    main()
