"""Envoy's route table: which service a request is for, and what is refused.

Order of the routes is the order of precedence: guards, header `x-headrace-service`, then path
`/<namespace>/<name>/v1/…`, then the body's `model`. Only the engine paths in `names.ENGINE_PATHS` reach an
engine; `/v1/models` and every error are answered by Envoy itself, so all of it works while the picker is
away.
"""

from dataclasses import dataclass, replace

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from google.protobuf import any_pb2

from headrace_engine.contracts import GatewayConfig, request_overrides
from headrace_gateway import names
from headrace_gateway.catalog import Catalog, ServiceKey
from headrace_gateway.headers import SERVICE_HEADER
from headrace_gateway.replies import Reply
from headrace_gateway.xds import filters, request_limits
from headrace_gateway.xds.access import denied_reply, restrict_match
from headrace_gateway.xds.direct_answers import Match, refusal_route
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.model_routes import READ, longest_body, model_routes

POST = {"name": ":method", "string_match": {"exact": "POST"}}
_NOT = {"invert_match": True, "treat_missing_header_as_empty": True}
ENGINE_PATH = {"regex": "|".join(names.ENGINE_PATHS)}
ANY_SERVICE = "(/[^/]+/[^/]+)?"  # by which a path may begin
OVERRIDE_HEADERS = [request_overrides.header_name(name) for name in request_overrides.OVERRIDES]
MOST_CHOICES = 128  # per prompt; OpenAI's own limit
FEW = r"(1[01]\d|12[0-8]|[1-9]\d?)(\.0+)?|null"  # up to it
OVERRIDE_BYTES = 16  # of one value; more is no number that anybody means


def routes(catalog: Catalog, cache: GenerationCache) -> route_pb2.RouteConfiguration:
    """Make the whole route table of a catalog."""
    models: dict[ServiceKey, list[str]] = {key: [] for key in catalog.services}
    for model, key in catalog.model_owners().items():
        models[key].append(model)
    configs = {key: service.config for key, service in catalog.services.items()}
    terms = {key: _terms(config) for key, config in configs.items()}
    host = route_components_pb2.VirtualHost(
        name="gateway",
        domains=["*"],
        retry_policy=_RETRIES,
        request_headers_to_remove=OVERRIDE_HEADERS,  # after the routes, which read them
        typed_per_filter_config={request_limits.FILTER: request_limits.rate_limits(configs.values())},
    )
    host.routes.extend(_GUARDS)
    for key in catalog.services:
        host.routes.extend(cache.get_or_make(_routes_by_header, str(key), terms[key]))
    host.routes.append(_WRONG_HEADER)
    for key in catalog.services:
        host.routes.extend(cache.get_or_make(_routes_by_path, str(key), terms[key]))
    for key, claimed in models.items():
        for model in claimed:
            host.routes.extend(cache.get_or_make(_routes_by_model, str(key), model, terms[key]))
    about_models = model_routes(models, {key: term.allowed for key, term in terms.items()}, cache)
    host.routes.extend(about_models)
    host.routes.extend(_REFUSALS)
    return route_pb2.RouteConfiguration(
        name=names.ROUTES,
        virtual_hosts=[host],
        max_direct_response_body_size_bytes={"value": max(4096, longest_body(about_models))},
    )


@dataclass(frozen=True, slots=True)
class _Terms:
    """On which terms a service takes requests, as its routes say it.

    `overridable`: its clients' overrides go on in the request's id. `allowed`: clients; None for everyone.
    `limits`: the service's configuration if it has any.
    """

    overridable: bool
    allowed: tuple[str, ...] | None
    limits: GatewayConfig | None


def _terms(config: GatewayConfig) -> _Terms:
    limits = replace(config, models=()) if request_limits.has_limits(config) else None
    return _Terms(config.slo.per_request is not None, config.allowed_clients, limits)


def _routes_by_header(cluster: str, terms: _Terms) -> list[route_components_pb2.Route]:
    header = {"name": SERVICE_HEADER, "string_match": {"exact": cluster}}
    return _engine_routes(cluster, {"safe_regex": ENGINE_PATH, "headers": [POST, header]}, terms)


def _routes_by_path(cluster: str, terms: _Terms) -> list[route_components_pb2.Route]:
    return [
        route
        for path in names.ENGINE_PATHS
        for route in _engine_routes(
            cluster, {"path": f"/{cluster}{path}", "headers": [POST]}, terms, prefix_rewrite=path
        )
    ]


def _routes_by_model(cluster: str, model: str, terms: _Terms) -> list[route_components_pb2.Route]:
    asked = _metadata(names.MODEL, {"string_match": {"exact": model}})
    match: Match = {"safe_regex": ENGINE_PATH, "headers": [POST], "dynamic_metadata": [asked]}
    return _engine_routes(cluster, match, terms)


def _engine_routes(
    cluster: str, match: Match, terms: _Terms, **action: object
) -> list[route_components_pb2.Route]:
    """Make a route to the engines and, where only some clients are allowed, a refusal of all others."""
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
    return [route] if terms.allowed is None else [route, refusal_route(match, denied_reply(cluster))]


def _make_id_with_overrides() -> base_pb2.HeaderValueOption:
    fields = "".join(f"%REQ({header}):{OVERRIDE_BYTES}%~" for header in OVERRIDE_HEADERS)
    return base_pb2.HeaderValueOption(
        header={"key": "x-request-id", "value": f"%REQ(x-request-id)%{request_overrides.MARK}{fields}"},
        append_action="OVERWRITE_IF_EXISTS_OR_ADD",
    )


def _guards() -> list[route_components_pb2.Route]:
    """Make what is refused for every service, with the picker or without: unreadable bodies, and bombs."""
    posted: Match = {"safe_regex": {"regex": rf"{ANY_SERVICE}({ENGINE_PATH['regex']})"}, "headers": [POST]}

    def with_headers(*headers: Match) -> Match:
        return {**posted, "headers": [POST, *headers]}

    no_json = {"name": "content-type", "string_match": {"safe_regex": {"regex": filters.JSON_TYPE}}}
    plain = {"name": "content-encoding", "string_match": {"exact": "identity", "ignore_case": True}}
    coded = {"name": "content-encoding", "present_match": True}
    malformed = _metadata(names.PROBLEM, {"string_match": {"exact": names.MALFORMED}})
    told = _metadata(names.CHOICES, {"present_match": True})
    few = {**_metadata(names.CHOICES, {"string_match": {"safe_regex": {"regex": FEW}}}), "invert": True}
    return [
        refusal_route(
            with_headers({"name": "content-length", "string_match": {"exact": "0"}}),
            Reply(400, "empty_body", "the request body is empty: send a JSON object"),
        ),
        refusal_route(
            with_headers({**no_json, **_NOT}),
            Reply(415, "unsupported_media_type", "send JSON, and say so: content-type: application/json"),
        ),
        refusal_route(
            with_headers(coded, {**plain, **_NOT}),
            Reply(415, "unsupported_encoding", "send the body as it is, without content-encoding"),
        ),
        refusal_route(
            {**posted, "dynamic_metadata": [malformed]},
            Reply(
                400,
                "invalid_json",
                "the request body is not JSON: it may be cut short, or hold what is no Unicode text, such as"
                r" half of a surrogate pair (\ud83d)",
            ),
        ),
        refusal_route(
            {**posted, "dynamic_metadata": [told, few]},
            Reply(400, "invalid_choices", f"`n` is no whole number from 1 to {MOST_CHOICES}", "n"),
        ),
    ]


def _refuse_header() -> route_components_pb2.Route:
    """Refuse a service header that no route took: going on to the body's model would hide the mistake."""
    return refusal_route(
        {"safe_regex": ENGINE_PATH, "headers": [POST, {"name": SERVICE_HEADER, "present_match": True}]},
        Reply(404, "service_not_found", f"no service is named by the header {SERVICE_HEADER}"),
    )


def _refusals() -> list[route_components_pb2.Route]:
    """Make what is left after every service had its chance, most telling first."""
    posted: Match = {"safe_regex": ENGINE_PATH, "headers": [POST]}
    by_path: Match = {"regex": rf"{ANY_SERVICE}({ENGINE_PATH['regex']})"}
    about_models: Match = {"regex": rf"{ANY_SERVICE}{names.MODELS_PATH}(/.*)?"}
    a_model: Match = {"regex": rf"{ANY_SERVICE}{names.MODELS_PATH}/.+"}
    no_model = {**_metadata(names.MODEL, {"present_match": True}), "invert": True}
    model = f"%DYNAMIC_METADATA({names.REQUEST_METADATA}:{names.MODEL})%"
    unnamed = "the request names no model: send a JSON object with the model's name in its field `model`"
    return [
        refusal_route(
            {**posted, "dynamic_metadata": [no_model]}, Reply(400, "model_missing", unnamed, "model")
        ),
        refusal_route(
            posted,
            Reply(404, "model_not_found", f"no model `{model}`: GET {names.MODELS_PATH} lists all", "model"),
        ),
        refusal_route(
            {"safe_regex": by_path, "headers": [POST]},
            Reply(404, "service_not_found", "no service is named by the path"),
        ),
        refusal_route({"safe_regex": by_path}, Reply(405, "method_not_allowed", "use POST", allow="POST")),
        refusal_route(
            {"safe_regex": a_model, "headers": [READ]},
            Reply(404, "model_not_found", f"no such model: GET {names.MODELS_PATH} lists all", "model"),
        ),
        refusal_route(
            {"safe_regex": about_models, "headers": [{**READ, "invert_match": True}]},
            Reply(405, "method_not_allowed", "use GET", allow="GET, HEAD"),
        ),
        refusal_route({"prefix": "/"}, Reply(404, "path_not_found", "no such path")),
    ]


def _metadata(key: str, value: Match) -> Match:
    return {"filter": names.REQUEST_METADATA, "path": [{"key": key}], "value": value}


def _previous_hosts() -> any_pb2.Any:
    predicate = any_pb2.Any()
    predicate.Pack(previous_hosts_pb2.PreviousHostsPredicate())
    return predicate


# Only what no engine can have seen is tried again: a prompt that crashed one must not meet the next.
_RETRIES = route_components_pb2.RetryPolicy(
    retry_on="connect-failure,refused-stream,reset-before-request",
    num_retries={"value": 3},
    retry_back_off={"base_interval": {"nanos": 5_000_000}, "max_interval": {"nanos": 50_000_000}},
    host_selection_retry_max_attempts=5,
    retry_host_predicate=[
        {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": _previous_hosts()}
    ],
)
_ID_WITH_OVERRIDES = _make_id_with_overrides()
_GUARDS = _guards()
_WRONG_HEADER = _refuse_header()
_REFUSALS = _refusals()
