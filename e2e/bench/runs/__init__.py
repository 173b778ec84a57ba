"""Simulated runs: one engine or a fleet, workloads, the pool that runs them, and a study's command line."""
