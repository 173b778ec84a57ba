"""The real vLLM on CPU: an engine pod on loopback, and what engines answer to the same prompts."""
