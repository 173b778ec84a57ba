"""Names of the HTTP headers that the gateway reads, sets or removes.

Those by which a client overrides options of one request are contracts'
(`headrace_engine.contracts.request_overrides`): the engine reads the same overrides from a request's body.
"""

from headrace_engine.contracts import request_overrides

SERVICE_HEADER = "x-headrace-service"  # by which a client names a service, `namespace/name`
CLIENT_HEADER = "x-headrace-client"  # whose API key a request bears; set by Envoy
ROUTE_HEADER = "x-headrace-route"  # tells the picker which service Envoy's route chose
OVERRIDE_HEADERS = [request_overrides.header_name(name) for name in request_overrides.OVERRIDES]
OVERRIDE_BYTES = 16  # of one value; more is no number that anybody means
# Between the relay and Envoy's listener for it: which engines a request shall not go to, that its client may
# have a part of the answer, why it could leave which engine, which engine answers, of which template its pod
# is, that it was lost or is not to be had.
EXCLUDE_HEADER = "x-headrace-exclude"
RESUMED_HEADER = "x-headrace-resumed"
LEAVING_HEADER = "x-headrace-leaving"  # `REASON IP:PORT`
ENGINE_HEADER = "x-headrace-engine"
LOST_HEADER = "x-headrace-lost"
REVISION_HEADER = "x-headrace-revision"
DESTINATION_HEADER = "x-gateway-destination-endpoint"  # of the picker's answer: the engine

# What only the gateway's own parts may set, or what changes what vLLM or Envoy does with a request.
STRIPPED_PREFIXES = (
    DESTINATION_HEADER,
    "x-envoy-",
    "x-vllm-",
    "x-data-parallel-",
    "x-headrace-priority",
    "x-headrace-token",
    ROUTE_HEADER,
    CLIENT_HEADER,
    EXCLUDE_HEADER,
    RESUMED_HEADER,
    LEAVING_HEADER,
)
