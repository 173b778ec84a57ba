"""Envoy's route table: which service a request is for, and what is refused.

Precedence: header `x-headrace-service`, then path `/<namespace>/<name>/v1/…`, then the body's `model`. Only
paths that fit `names.ENGINE_PATHS` reach an engine; `/v1/models` and every error are answered by Envoy
itself, so all of it works while the picker is away.

A request finds the routes of its service by header or path in a tree, and by model in a list: a tree cannot
look at what was read from the body. So what a request costs hardly depends on how many services there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2  # noqa: F401  in RETRIES
from envoy.extensions.retry.priority.previous_priorities.v3 import (  # noqa: F401  in ANOTHER_PRIORITY
    previous_priorities_config_pb2,
)
from google.protobuf import json_format

from headrace_engine.contracts import GatewayConfig, request_overrides
from headrace_gateway import names
from headrace_gateway.catalog import Catalog, ServiceKey
from headrace_gateway.headers import OVERRIDE_BYTES, OVERRIDE_HEADERS, ROUTE_HEADER, SERVICE_HEADER
from headrace_gateway.replies import Reply
from headrace_gateway.xds import filters, request_limits, route_tree
from headrace_gateway.xds.access import denied_reply, restrict_match
from headrace_gateway.xds.clusters import relay_cluster
from headrace_gateway.xds.credentials import API_KEYS
from headrace_gateway.xds.direct_answers import (
    NO_KEY,
    NO_PICKER,
    Match,
    direct_route,
    refusal_route,
    set_header,
)
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.model_routes import READ, longest_body, model_routes

Routes = Sequence[route_components_pb2.Route]

QUERY = r"(\?.*)?"  # as which a path may go on
OF_A_SERVICE = "/[^/?]+/[^/?]+"  # as which a path may begin
MOST_CHOICES = 128  # per prompt; OpenAI's own limit
FEW = r"(1[01]\d|12[0-8]|[1-9]\d?)(\.0+)?|null"  # up to it
ANY: Match = {"prefix": "/"}


def routes(catalog: Catalog, cache: GenerationCache) -> route_pb2.RouteConfiguration:
    """Make the whole route table of a catalog."""
    models: dict[ServiceKey, list[str]] = {key: [] for key in catalog.services}
    for model, key in catalog.model_owners().items():
        models[key].append(model)
    configs = {key: service.config for key, service in catalog.services.items()}
    terms = {key: _terms(config) for key, config in configs.items()}
    about_models = model_routes(models, {key: term.allowed for key, term in terms.items()}, cache)
    by_model = [
        route
        for key, claimed in models.items()
        for route in cache.get_or_make(_routes_by_model, str(key), tuple(claimed), terms[key])
    ]
    posted = route_tree.first_match(
        [
            *_REFUSED_BY_HEADERS,
            (
                route_tree.no(_AT_ROOT),
                route_tree.by_prefix(
                    ":path",
                    {f"/{key}/": cache.get_or_make(_by_path, str(key), terms[key]) for key in configs},
                    route_tree.leaf([*_UNREADABLE, _NO_SUCH_PATH]),
                ),
            ),
            (
                route_tree.is_present(SERVICE_HEADER),
                route_tree.by_value(
                    SERVICE_HEADER,
                    {str(key): cache.get_or_make(_by_header, str(key), terms[key]) for key in configs},
                    route_tree.leaf([*_UNREADABLE, _WRONG_HEADER]),
                ),
            ),
        ],
        route_tree.leaf([*_UNREADABLE, _NO_MODEL, *by_model, _UNKNOWN_MODEL]),
    )
    host = route_components_pb2.VirtualHost(
        name="gateway",
        domains=["*"],
        matcher=route_tree.first_match(
            [
                (_POSTED_TO_ENGINES, route_tree.Branch(matcher=posted)),
                (_ABOUT_MODELS, route_tree.leaf([*about_models, *_REFUSED_ABOUT_MODELS])),
            ],
            route_tree.leaf(_OTHERS),
        ),
        retry_policy=_RETRIES,
        request_headers_to_remove=OVERRIDE_HEADERS,  # after the routes, which read them
        typed_per_filter_config={request_limits.FILTER: request_limits.rate_limits(configs.values())},
    )
    return route_pb2.RouteConfiguration(
        name=names.ROUTES,
        virtual_hosts=[host],
        max_direct_response_body_size_bytes={"value": max(4096, longest_body(about_models))},
    )


@dataclass(frozen=True, slots=True)
class _Terms:
    """On which terms a service takes requests, as its routes say it.

    `overridable`: its clients' overrides go on in the request's id. `allowed`: clients; None for everyone.
    `limits`: the service's configuration if it has any. `resume`: streams go through the relay.
    """

    overridable: bool
    allowed: tuple[str, ...] | None
    limits: GatewayConfig | None
    resume: bool


def _terms(config: GatewayConfig) -> _Terms:
    limits = replace(config, models=()) if request_limits.has_limits(config) else None
    return _Terms(config.slo.per_request is not None, config.allowed_clients, limits, config.resume)


def _by_header(cluster: str, terms: _Terms) -> route_tree.Branch:
    return route_tree.leaf([*_UNREADABLE, *_engine_routes(cluster, ANY, terms)])


def _by_path(cluster: str, terms: _Terms) -> route_tree.Branch:
    routes = _engine_routes(cluster, {"prefix": f"/{cluster}/"}, terms, prefix_rewrite="/")
    return route_tree.leaf([*_UNREADABLE, *routes])


def _routes_by_model(cluster: str, models: tuple[str, ...], terms: _Terms) -> Routes:
    exactly: list[Match] = [{"string_match": {"exact": model}} for model in models]
    # Envoy refuses a choice of one.
    value = exactly[0] if len(exactly) == 1 else {"or_match": {"value_matchers": exactly}}
    asked = _metadata(names.MODEL, value)
    return _engine_routes(cluster, {**ANY, "dynamic_metadata": [asked]}, terms)


def _engine_routes(cluster: str, match: Match, terms: _Terms, **action: object) -> Routes:
    """Make a route to the engines and, where only some clients are allowed, a refusal of all others.

    One for streams comes first where they go through the relay, which has the picker asked itself.
    """
    # Zero: no limit to a whole answer, which may stream for long; the idle timeout ends dead ones.
    action |= {"cluster": cluster, "timeout": {}, "idle_timeout": {"seconds": names.IDLE_SECONDS}}
    metadata = None
    if terms.limits is not None:
        action["rate_limits"] = request_limits.count_actions(terms.limits)
        wait = {"string_value": str(request_limits.retry_after(terms.limits))}
        metadata = {"filter_metadata": {names.REQUEST_METADATA: {"fields": {names.RETRY_AFTER: wait}}}}
    route = route_components_pb2.Route(
        name=cluster,
        match=restrict_match(match, terms.allowed),
        metadata=metadata,
        route=action,
        request_headers_to_remove=[SERVICE_HEADER],
        request_headers_to_add=[_ID_WITH_OVERRIDES] if terms.overridable else [],
    )
    found = [_relayed(route), route] if terms.resume else [route]
    return found if terms.allowed is None else [*found, refusal_route(match, denied_reply(cluster))]


def _relayed(route: route_components_pb2.Route) -> route_components_pb2.Route:
    """Make a route to the relay of one to engines, for streams."""
    streams = _metadata(names.STREAM, {"bool_match": True})
    made = route_components_pb2.Route(
        match={"dynamic_metadata": [streams]},
        route={"cluster": relay_cluster(route.route.cluster), "retry_policy": _RETRIES_BESIDE_RELAY},
        request_headers_to_add=[set_header(ROUTE_HEADER, route.name)],
        typed_per_filter_config={names.PICKER_FILTER: NO_PICKER},
    )
    merged = route_components_pb2.Route()
    merged.CopyFrom(route)
    merged.MergeFrom(made)
    return merged


def _make_id_with_overrides() -> base_pb2.HeaderValueOption:
    fields = [f"%REQ({header}):{OVERRIDE_BYTES}%" for header in OVERRIDE_HEADERS]
    value = request_overrides.write_request_id("%REQ(x-request-id)%", fields)
    return set_header("x-request-id", value)


def _refused_by_headers() -> list[tuple[route_tree.Predicate, route_tree.Branch]]:
    """Refuse for every service, with the picker or without, what headers say cannot be read."""
    is_json = route_tree.fits("content-type", filters.JSON_TYPE)
    plain = route_tree.equals("content-encoding", "identity", ignore_case=True)
    coded = route_tree.is_present("content-encoding")
    refused = [
        (
            route_tree.equals("content-length", "0"),
            Reply(400, "empty_body", "the request body is empty: send a JSON object"),
        ),
        (
            route_tree.no(is_json),
            Reply(415, "unsupported_media_type", "send JSON, and say so: content-type: application/json"),
        ),
        (
            route_tree.both(coded, route_tree.no(plain)),
            Reply(415, "unsupported_encoding", "send the body as it is, without content-encoding"),
        ),
    ]
    return [(predicate, route_tree.leaf([refusal_route(ANY, reply)])) for predicate, reply in refused]


def _unreadable() -> Routes:
    """Refuse for every service bodies that cannot be read, and those that ask for too much at once."""
    malformed = _metadata(names.PROBLEM, {"string_match": {"exact": names.MALFORMED}})
    told = _metadata(names.CHOICES, {"present_match": True})
    few = {**_metadata(names.CHOICES, {"string_match": {"safe_regex": {"regex": FEW}}}), "invert": True}
    return [
        refusal_route(
            {**ANY, "dynamic_metadata": [malformed]},
            Reply(
                400,
                "invalid_json",
                "the request body is not JSON: it may be cut short, or hold what is no Unicode text, such as"
                r" half of a surrogate pair (\ud83d)",
            ),
        ),
        refusal_route(
            {**ANY, "dynamic_metadata": [told, few]},
            Reply(400, "invalid_choices", f"`n` is no whole number from 1 to {MOST_CHOICES}", "n"),
        ),
    ]


def _no_model() -> route_components_pb2.Route:
    """Refuse a body that names no model: also every request before its body is read, for a moment."""
    no_model = {**_metadata(names.MODEL, {"present_match": True}), "invert": True}
    unnamed = "the request names no model: send a JSON object with the model's name in its field `model`"
    return refusal_route(
        {**ANY, "dynamic_metadata": [no_model]}, Reply(400, "model_missing", unnamed, "model")
    )


def _unknown_model() -> route_components_pb2.Route:
    model = f"%DYNAMIC_METADATA({names.REQUEST_METADATA}:{names.MODEL})%"
    told = f"no model `{model}`: GET {names.MODELS_PATH} lists all"
    return refusal_route(ANY, Reply(404, "model_not_found", told, "model"))


def _refused_about_models() -> Routes:
    """Refuse what asks about no model that there is, most telling first."""
    not_read: Match = {**ANY, "headers": [{**READ, "invert_match": True}]}
    a_model: Match = {"safe_regex": {"regex": f"({OF_A_SERVICE})?{names.MODELS_PATH}/.+"}}
    told = f"no such model: GET {names.MODELS_PATH} lists all"
    return [
        refusal_route(not_read, Reply(405, "method_not_allowed", "use GET", allow="GET, HEAD")),
        refusal_route(a_model, Reply(404, "model_not_found", told, "model")),
        _NO_PATH,
    ]


def _health() -> route_components_pb2.Route:
    """Answer who asks whether this gateway is there, also without a key."""
    route = direct_route({"path": names.ENGINE_HEALTH_PATH, "headers": [READ]}, {"status": 200})
    route.typed_per_filter_config[API_KEYS].CopyFrom(NO_KEY)
    return route


def _metadata(key: str, value: Match) -> Match:
    return {"filter": names.REQUEST_METADATA, "path": [{"key": key}], "value": value}


_RETRIES = json_format.ParseDict(filters.RETRIES, route_components_pb2.RetryPolicy())
_RETRIES_BESIDE_RELAY = json_format.ParseDict(
    filters.RETRIES | {"retry_priority": filters.ANOTHER_PRIORITY}, route_components_pb2.RetryPolicy()
)
_ID_WITH_OVERRIDES = _make_id_with_overrides()

_AT_ROOT = route_tree.either(route_tree.fits(":path", path + QUERY) for path in names.ENGINE_PATHS)
_POSTED_TO_ENGINES = route_tree.both(
    route_tree.equals(":method", "POST"),
    route_tree.either(
        route_tree.fits(":path", f"({OF_A_SERVICE})?{path}{QUERY}") for path in names.ENGINE_PATHS
    ),
)
_ABOUT_MODELS = route_tree.fits(":path", f"({OF_A_SERVICE})?{names.MODELS_PATH}(/.*)?{QUERY}")
_REFUSED_BY_HEADERS = _refused_by_headers()
_UNREADABLE = _unreadable()
# Going on to the body's model would hide a mistake in the header or the path.
_WRONG_HEADER = refusal_route(
    ANY, Reply(404, "service_not_found", f"no service is named by the header {SERVICE_HEADER}")
)
_NO_SUCH_PATH = refusal_route(ANY, Reply(404, "service_not_found", "no service is named by the path"))
_NO_MODEL = _no_model()
_UNKNOWN_MODEL = _unknown_model()
_NO_PATH = refusal_route(ANY, Reply(404, "path_not_found", "no such path"))
_REFUSED_ABOUT_MODELS = _refused_about_models()
_OTHERS = [
    _health(),
    *(
        refusal_route(
            {"safe_regex": {"regex": f"({OF_A_SERVICE})?{path}"}},
            Reply(405, "method_not_allowed", "use POST", allow="POST"),
        )
        for path in names.ENGINE_PATHS
    ),
    _NO_PATH,
]
