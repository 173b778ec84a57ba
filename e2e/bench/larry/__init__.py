"""LARRY against stock vLLM on one simulated engine: cases, figures, limits, page, study."""
