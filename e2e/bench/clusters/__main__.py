"""Run the study of clusters: `python -m e2e.bench.clusters`."""

from e2e.bench.clusters.study import main

if __name__ == "__main__":
    main()
