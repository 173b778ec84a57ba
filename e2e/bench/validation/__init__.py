"""The simulator against measured vLLM runs, request by request."""
