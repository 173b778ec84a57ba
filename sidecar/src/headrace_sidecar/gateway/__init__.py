"""The gateway: Envoy carries every byte, the picker in this package says where each request goes.

```
  watch (LLMRoutes, EndpointSlices) ──► catalog ──► xds ──► ads ──► Envoy's routes, clusters, endpoints
  load_client (sidecars' /load/stream) ──► fleet of each service ◄── picks ◄── Envoy, one HTTP request each
                                              └── balancers: pure functions, no clock, no I/O
```

Envoy routes by model, path or header on its own and balances by least request when the picker is away; the
picker adds the choice of the engine that will start the request soonest.
"""
