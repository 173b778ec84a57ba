"""Envoy's route table: which service a request is for, and what is refused.

Order of the routes is the order of precedence: guards, header `x-headrace-service`, then path
`/<namespace>/<name>/v1/…`, then the body's `model`. Only the engine paths in `names.ENGINE_PATHS` reach an
engine; `/v1/models` and every error are answered by Envoy itself, so all of it works while the picker is
away.
"""

import json
from collections.abc import Iterable

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from google.protobuf import any_pb2

from headrace_engine.contracts import wishes
from headrace_sidecar.gateway import filters, names
from headrace_sidecar.gateway.catalog import Catalog, ServiceKey
from headrace_sidecar.gateway.kept import Kept
from headrace_sidecar.gateway.replies import Reply

Match = dict[str, object]

POST = {"name": ":method", "string_match": {"exact": "POST"}}
GET = {"name": ":method", "string_match": {"exact": "GET"}}
_NOT = {"invert_match": True, "treat_missing_header_as_empty": True}
ENGINE_PATH = {"regex": "|".join(names.ENGINE_PATHS)}
WISH_HEADERS = [wishes.header(wish) for wish in wishes.WISHES]
MOST_CHOICES = 128  # per prompt; OpenAI's own limit
FEW = r"(1[01]\d|12[0-8]|[1-9]\d?)(\.0+)?|null"  # up to it
WISH_BYTES = 16  # of one value; more is no number that anybody means


def routes(catalog: Catalog) -> route_pb2.RouteConfiguration:
    """The whole route table."""
    models: dict[ServiceKey, list[str]] = {key: [] for key in catalog.services}
    for model, key in catalog.model_owners().items():
        models[key].append(model)
    listing = _models_body((model, key.namespace) for key, owned in models.items() for model in owned)
    asking = {key: service.config.slo.per_request is not None for key, service in catalog.services.items()}
    host = route_components_pb2.VirtualHost(
        name="gateway",
        domains=["*"],
        retry_policy=_RETRIES,
        request_headers_to_remove=WISH_HEADERS,  # after the routes, which read them
    )
    host.routes.extend(_GUARDS)
    for key in catalog.services:
        host.routes.append(_route_by_header(str(key), asking[key]))
    host.routes.append(_WRONG_HEADER)
    for key, owned in models.items():
        host.routes.extend(_routes_by_path(str(key), asking[key]))
        own_listing = _models_body((model, key.namespace) for model in owned)
        host.routes.append(_models_route(f"/{key}{names.MODELS_PATH}", own_listing))
    for key, claimed in models.items():
        host.routes.extend(_route_by_model(str(key), model, asking[key]) for model in claimed)
    host.routes.append(_models_route(names.MODELS_PATH, listing))
    host.routes.extend(_REFUSALS)
    return route_pb2.RouteConfiguration(
        name=names.ROUTES,
        virtual_hosts=[host],
        max_direct_response_body_size_bytes={"value": max(4096, len(listing))},
    )


@Kept
def _route_by_header(cluster: str, asking: bool) -> route_components_pb2.Route:
    header = {"name": names.SERVICE_HEADER, "string_match": {"exact": cluster}}
    return _engine_route(cluster, {"safe_regex": ENGINE_PATH, "headers": [POST, header]}, asking)


@Kept
def _routes_by_path(cluster: str, asking: bool) -> list[route_components_pb2.Route]:
    return [
        _engine_route(cluster, {"path": f"/{cluster}{path}", "headers": [POST]}, asking, prefix_rewrite=path)
        for path in names.ENGINE_PATHS
    ]


@Kept
def _route_by_model(cluster: str, model: str, asking: bool) -> route_components_pb2.Route:
    asked = _metadata(names.MODEL, {"string_match": {"exact": model}})
    match: Match = {"safe_regex": ENGINE_PATH, "headers": [POST], "dynamic_metadata": [asked]}
    return _engine_route(cluster, match, asking)


def _engine_route(cluster: str, match: Match, asking: bool, **action: object) -> route_components_pb2.Route:
    """A route to the engines; if the service is `asking`, its clients' wishes go on in the request's id."""
    return route_components_pb2.Route(
        name=cluster,
        match=match,
        # Zero: no limit to a whole answer, which may stream for long; the idle timeout ends dead ones.
        route={"cluster": cluster, "timeout": {}, "idle_timeout": {"seconds": names.IDLE_SECONDS}, **action},
        request_headers_to_remove=[names.SERVICE_HEADER],
        request_headers_to_add=[_WISHES_IN_ID] if asking else [],
    )


def _wishes_in_id() -> base_pb2.HeaderValueOption:
    fields = "".join(f"%REQ({header}):{WISH_BYTES}%~" for header in WISH_HEADERS)
    return base_pb2.HeaderValueOption(
        header={"key": "x-request-id", "value": f"%REQ(x-request-id)%{wishes.MARK}{fields}"},
        append_action="OVERWRITE_IF_EXISTS_OR_ADD",
    )


def _guards() -> list[route_components_pb2.Route]:
    """What is refused for every service, with the picker or without: bodies nobody can read, and bombs."""
    path = {"regex": rf"(/[^/]+/[^/]+)?({'|'.join(names.ENGINE_PATHS)})"}
    no_json = {"name": "content-type", "string_match": {"safe_regex": {"regex": filters.JSON_TYPE}}}
    plain = {"name": "content-encoding", "string_match": {"exact": "identity", "ignore_case": True}}
    coded = {"name": "content-encoding", "present_match": True}
    told = _metadata(names.CHOICES, {"present_match": True})
    few = {**_metadata(names.CHOICES, {"string_match": {"safe_regex": {"regex": FEW}}}), "invert": True}
    return [
        _refuse(
            {"safe_regex": path, "headers": [POST, {**no_json, **_NOT}]},
            Reply(415, "unsupported_media_type", "send JSON, and say so: content-type: application/json"),
        ),
        _refuse(
            {"safe_regex": path, "headers": [POST, coded, {**plain, **_NOT}]},
            Reply(415, "unsupported_encoding", "send the body as it is, without content-encoding"),
        ),
        _refuse(
            {"safe_regex": path, "headers": [POST], "dynamic_metadata": [told, few]},
            Reply(400, "invalid_choices", f"`n` is no whole number from 1 to {MOST_CHOICES}"),
        ),
    ]


def _models_route(path: str, listing: str) -> route_components_pb2.Route:
    response: Match = {"status": 200, "body": {"inline_string": listing}}
    return _direct({"path": path, "headers": [GET]}, response)


def _models_body(models: Iterable[tuple[str, str]]) -> str:
    """OpenAI's list of models, from pairs of name and namespace."""
    return compact_json(
        {
            "object": "list",
            "data": [
                {"id": model, "object": "model", "created": 0, "owned_by": namespace}
                for model, namespace in sorted(models)
            ],
        }
    )


def _refuse_header() -> route_components_pb2.Route:
    """A service header that no route took: going on to the body's model would hide the mistake."""
    return _refuse(
        {"safe_regex": ENGINE_PATH, "headers": [POST, {"name": names.SERVICE_HEADER, "present_match": True}]},
        Reply(404, "service_not_found", f"no service is named by the header {names.SERVICE_HEADER}"),
    )


def _refusals() -> list[route_components_pb2.Route]:
    """What is left after every service had its chance, most telling first."""
    posted: Match = {"safe_regex": ENGINE_PATH, "headers": [POST]}
    malformed = _metadata(names.PROBLEM, {"string_match": {"exact": names.MALFORMED}})
    no_model = {**_metadata(names.MODEL, {"present_match": True}), "invert": True}
    model = f"%DYNAMIC_METADATA({names.REQUEST_METADATA}:{names.MODEL})%"
    return [
        _refuse(
            {**posted, "dynamic_metadata": [malformed]},
            Reply(400, "invalid_json", "the body is not JSON, or content-type is not application/json"),
        ),
        _refuse(
            {**posted, "dynamic_metadata": [no_model]},
            Reply(400, "model_missing", "the request names no model: set the field `model`"),
        ),
        _refuse(
            posted,
            Reply(404, "model_not_found", f"no model `{model}`: GET {names.MODELS_PATH} lists all"),
        ),
        _refuse({"safe_regex": ENGINE_PATH}, Reply(405, "method_not_allowed", "use POST")),
        _refuse({"prefix": "/"}, Reply(404, "path_not_found", "no such path")),
    ]


def _refuse(match: Match, reply: Reply) -> route_components_pb2.Route:
    response: Match = {"status": reply.status, "body": {"inline_string": compact_json(reply.body)}}
    if "%" in reply.message:  # Envoy fills in what it knows of the request, escaped for JSON
        response["body_format"] = {"json_format": reply.body, "content_type": "application/json"}
    return _direct(match, response)


def _direct(match: Match, response: Match) -> route_components_pb2.Route:
    """A route that Envoy answers itself; the picker is not asked."""
    json_header = {"key": "content-type", "value": "application/json"}
    return route_components_pb2.Route(
        match=match,
        direct_response=response,
        response_headers_to_add=[{"header": json_header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
        typed_per_filter_config={names.PICKER_FILTER: _NO_PICKER},
    )


def _metadata(key: str, value: Match) -> Match:
    return {"filter": names.REQUEST_METADATA, "path": [{"key": key}], "value": value}


def compact_json(body: object) -> str:
    """ASCII, so that its length is its size in bytes."""
    return json.dumps(body, separators=(",", ":"))


def _previous_hosts() -> any_pb2.Any:
    predicate = any_pb2.Any()
    predicate.Pack(previous_hosts_pb2.PreviousHostsPredicate())
    return predicate


def _no_picker() -> any_pb2.Any:
    disabled = any_pb2.Any()
    disabled.Pack(ext_authz_pb2.ExtAuthzPerRoute(disabled=True))
    return disabled


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
_NO_PICKER = _no_picker()
_WISHES_IN_ID = _wishes_in_id()
_GUARDS = _guards()
_WRONG_HEADER = _refuse_header()
_REFUSALS = _refusals()
