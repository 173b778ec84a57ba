"""Random changes of LLMServices on a real API server: whether the way to a spec leaves a trace."""
