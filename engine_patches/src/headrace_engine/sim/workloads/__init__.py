"""Requests to simulate, recorded or generated, as lists of `Arrival`. Nothing here needs vLLM."""
