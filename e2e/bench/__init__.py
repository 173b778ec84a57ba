"""Benchmarks: each measures one claim and writes its figures to `results/`."""
