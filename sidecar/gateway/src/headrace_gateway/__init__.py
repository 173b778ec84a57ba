"""The gateway: Envoy carries every byte, the picker in this package says where each request goes.

```
  kube (LLMRoutes, EndpointSlices) ──► catalog ──► xds ──► Envoy's routes, clusters, endpoints
  reports (sidecars' /load/stream) ──► pick: a fleet per service ◄── Envoy, one HTTP request each
                                         └── balancers: pure functions, no clock, no I/O
```

Envoy routes by model, path or header on its own and balances by least request when the picker is away; the
picker adds the choice of the engine that will start the request soonest.
"""
