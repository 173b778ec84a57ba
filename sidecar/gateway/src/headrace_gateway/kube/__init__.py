"""Kubernetes: makes the catalog of LLMRoutes and EndpointSlices, and elects the picker that leads."""
