"""Policies on real vLLM engines: measured gains over stock, beside what was simulated before each run."""
