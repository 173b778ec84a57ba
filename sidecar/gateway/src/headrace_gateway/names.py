"""Words that Envoy's static bootstrap, its dynamic configuration and the picker must agree on."""

ROUTES = "headrace"  # the RouteConfiguration that the listener asks for
PICKER_FILTER = "envoy.filters.http.ext_authz"
PICKER_CLUSTER = "picker"
XDS_CLUSTER = "xds"
ADMIN_CLUSTER = "admin"  # this Envoy itself
RELAY_CLUSTER = "relay"  # the process beside this Envoy that streams go through
# In a folder that both have: the relay listens at the first, Envoy for the relay at the second.
RELAY_SOCKET = "relay.sock"
ENGINES_SOCKET = "engines.sock"
METRICS_PATH = "/stats/prometheus"  # the only path of it that anyone else reaches
HEALTH_PATH = "/healthz"  # of the picker's port for picks: Envoy asks it whether there is a picker
LEADER_PATH = "/leader"  # likewise, whether it is the one that configures Envoys
SURPLUSES_PATH = "/surpluses"  # asked by relays: which engines shall hand over streams
PICK_PATH = "/pick"  # goes before the request's own path

ENGINE_METADATA = "headrace"  # metadata namespace of an endpoint
REVISION = "revision"

REQUEST_METADATA = "headrace"  # dynamic metadata namespace of what was read from the body
MODEL = "model"
CHOICES = "choices"
STREAM = "stream"
PROBLEM = "problem"
MALFORMED = "malformed"
NAMELESS = "nameless"
RETRY_AFTER = "retry_after"  # a route's metadata: seconds that who goes over its limits is told to wait

# Values of `headers.LOST_HEADER`.
ENGINE_LOST = "engine-lost"
NO_ENGINE = "no-engine"

PICK_METADATA = PICKER_FILTER  # dynamic metadata namespace of the picker's choice

IDLE_SECONDS = 3600  # longest silence on a stream: an answer that is not streamed, behind a long queue
MESSAGES_PATH = "/v1/messages"  # Anthropic's
COUNT_PATH = f"{MESSAGES_PATH}/count_tokens"  # makes the engine compute nothing
# Regexes of the paths that engines serve, as large as Envoy takes them: which do, depends on a model's task.
ENGINE_PATHS = (
    "/v1/((chat/)?completions|embeddings|responses|messages(/count_tokens)?)",
    "(/v[12])?/(rerank|score)",
)
ENGINE_HEALTH_PATH = "/health"  # vLLM's, which the readiness probe asks too; clients ask the gateway
MODELS_PATH = "/v1/models"
SERVICE_LABELS = ("namespace", "service")  # of metrics, as the operator and the sidecars tell a service


def service_labels(service: str) -> tuple[str, str]:
    """Split NAMESPACE/NAME, as Envoy's routes call a service, into the values of `SERVICE_LABELS`."""
    namespace, _, name = service.partition("/")
    return namespace, name
