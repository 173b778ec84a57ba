"""Envoy's configuration: what the picker sends it over xDS, and what it is started with.

    catalog ──► snapshot (clusters, endpoints, routes) ──► ads ──► Envoy ──► acknowledged

`bootstrap` is the static part: listeners and filters, TLS, API keys and overload limits.
"""
