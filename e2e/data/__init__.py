"""Recorded workloads that demo and benchmarks replay; SOURCES.md says where they come from."""
