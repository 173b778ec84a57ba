"""Run the study of LARRY: `python -m e2e.bench.larry`."""

from e2e.bench.larry.study import main

if __name__ == "__main__":
    main()
