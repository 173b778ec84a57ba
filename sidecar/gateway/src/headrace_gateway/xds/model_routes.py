"""What Envoy answers about models: `/v1/models`, and each of them by its name.

The same below `/<namespace>/<name>`, with the models of that service only.
"""

import re
from collections.abc import Mapping, Sequence, Set
from urllib.parse import quote

from envoy.config.route.v3.route_components_pb2 import Route

from headrace_gateway import names
from headrace_gateway.catalog import ServiceKey
from headrace_gateway.xds.access import Allowed, group_clients, restrict_match
from headrace_gateway.xds.direct_answers import Match, compact_json, direct_route
from headrace_gateway.xds.generation_cache import GenerationCache

READ = {"name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD"}}}
_UNQUOTED = "!$&'()*+,;=:@"  # characters that a part of a path may have as they are


def model_routes(
    owned: Mapping[ServiceKey, Sequence[str]], allowed: Allowed, cache: GenerationCache
) -> list[Route]:
    """Make the routes of lists, then of each model; nobody is told of what only others may use."""

    def list_route(path: str, keys: Set[ServiceKey], clients: tuple[str, ...] | None) -> Route:
        listing = cache.get_or_make(_listing, _named(owned, keys))
        return cache.get_or_make(_list_route, path, listing, clients)

    open_to_all = {key for key in owned if allowed[key] is None}
    lists = [
        list_route(names.MODELS_PATH, open_to_all | also, clients) for clients, also in group_clients(allowed)
    ]
    lists.append(list_route(names.MODELS_PATH, open_to_all, None))
    lists += [list_route(f"/{key}{names.MODELS_PATH}", {key}, allowed[key]) for key in owned]
    return lists + [
        cache.get_or_make(_model_route, key, model, allowed[key])
        for key, models in owned.items()
        for model in models
    ]


def _named(owned: Mapping[ServiceKey, Sequence[str]], keys: Set[ServiceKey]) -> tuple[tuple[str, str], ...]:
    return tuple((model, key.namespace) for key, models in owned.items() if key in keys for model in models)


def longest_body(routes: Sequence[Route]) -> int:
    """Return the bytes of the longest answer among these routes."""
    return max(len(route.direct_response.body.inline_string) for route in routes)


def spellings(model: str) -> list[str]:
    """List ways to write a name in a path: clients differ in what they quote, slashes above all."""
    return sorted({quote(model, safe=safe) for safe in (f"/{_UNQUOTED}", _UNQUOTED, "/", "")})


def _list_route(path: str, listing: str, allowed: tuple[str, ...] | None) -> Route:
    match: Match = {"path": path, "headers": [READ]}
    return direct_route(restrict_match(match, allowed), {"status": 200, "body": {"inline_string": listing}})


def _model_route(key: ServiceKey, model: str, allowed: tuple[str, ...] | None) -> Route:
    spelled = re.sub("%[0-9A-F]{2}", r"(?i:\g<0>)", "|".join(map(re.escape, spellings(model))))
    path = f"(/{re.escape(str(key))})?{names.MODELS_PATH}/({spelled})"
    body = {"inline_string": compact_json(_model(model, key.namespace))}
    match: Match = {"safe_regex": {"regex": path}, "headers": [READ]}
    return direct_route(restrict_match(match, allowed), {"status": 200, "body": body})


def _listing(models: tuple[tuple[str, str], ...]) -> str:
    """Write OpenAI's list of models, from pairs of name and namespace."""
    return compact_json({"object": "list", "data": [_model(*each) for each in sorted(models)]})


def _model(model: str, namespace: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": namespace}
