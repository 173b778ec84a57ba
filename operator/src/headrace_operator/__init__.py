"""The Headrace operator: turns LLMService objects into running, scheduled and routed vLLM engines."""
