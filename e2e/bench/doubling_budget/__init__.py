"""DoublingBudget against stock vLLM on one simulated engine: cases, figures, page, study."""
