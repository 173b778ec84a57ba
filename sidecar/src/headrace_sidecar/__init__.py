"""What Headrace runs beside servers that others wrote: `engine` beside vLLM, `gateway` beside Envoy."""
