"""Recorded workloads, and measured times of operators; SOURCES.md says where they come from."""
