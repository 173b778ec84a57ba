"""EconoServe against tuned stock vLLM on one simulated engine: cases, figures, page, study."""
