"""Words that Envoy's static bootstrap, its dynamic configuration and the picker must agree on."""

ROUTES = "headrace"  # the RouteConfiguration that the listener asks for
EXT_PROC = "envoy.filters.http.ext_proc"
PICKER_CLUSTER = "picker"
XDS_CLUSTER = "xds"
HEALTH_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

ROUTE_ATTRIBUTE = "xds.route_name"  # tells the picker which service Envoy's route chose

REQUEST_METADATA = "headrace"  # dynamic metadata namespace of what was read from the body
MODEL = "model"
PROBLEM = "problem"
MALFORMED = "malformed"

PICK_METADATA = "envoy.lb"  # dynamic metadata namespace of the picker's choice
PICK_KEY = "x-gateway-destination-endpoint"  # GIE's key, so that our picker's answer reads as any other's

SERVICE_HEADER = "x-headrace-service"
ENGINE_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
MODELS_PATH = "/v1/models"
