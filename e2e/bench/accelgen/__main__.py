"""Run the study of AccelGen: `python -m e2e.bench.accelgen`."""

from e2e.bench.accelgen.study import main

if __name__ == "__main__":
    main()
