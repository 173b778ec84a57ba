"""Run the study of SAL: `python -m e2e.bench.sal`."""

from e2e.bench.sal.study import main

if __name__ == "__main__":
    main()
