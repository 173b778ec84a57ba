"""Scheduling policies for an unmodified vLLM, and the contracts between Headrace's parts."""
