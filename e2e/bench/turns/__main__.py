"""Run the study of turns: `python -m e2e.bench.turns`."""

from e2e.bench.turns.study import main

if __name__ == "__main__":
    main()
