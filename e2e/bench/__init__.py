"""Benchmarks: each answers one question and writes its figures to `results/`."""
