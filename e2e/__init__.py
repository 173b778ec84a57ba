"""What runs on the whole system: the local cluster, the demo, benchmarks and their data."""
