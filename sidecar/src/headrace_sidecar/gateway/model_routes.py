"""What Envoy answers about models: `/v1/models`, and each of them by its name.

The same below `/<namespace>/<name>`, with the models of that service only.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from envoy.config.route.v3 import route_components_pb2

from headrace_sidecar.gateway import names
from headrace_sidecar.gateway.catalog import ServiceKey
from headrace_sidecar.gateway.direct import compact_json, direct
from headrace_sidecar.gateway.kept import Kept

READ = {"name": ":method", "string_match": {"safe_regex": {"regex": "GET|HEAD"}}}
_UNQUOTED = "!$&'()*+,;=:@"  # characters that a part of a path may have as they are


def model_routes(owned: Mapping[ServiceKey, Sequence[str]]) -> list[route_components_pb2.Route]:
    """Lists first, then each model."""
    everything = _listing(tuple((model, key.namespace) for key, models in owned.items() for model in models))
    lists = [_list_route(names.MODELS_PATH, everything)]
    for key, models in owned.items():
        own = _listing(tuple((model, key.namespace) for model in models))
        lists.append(_list_route(f"/{key}{names.MODELS_PATH}", own))
    return lists + [_model_route(key, model) for key, models in owned.items() for model in models]


def longest_body(routes: Sequence[route_components_pb2.Route]) -> int:
    """Bytes of the longest answer among these routes."""
    return max(len(route.direct_response.body.inline_string) for route in routes)


def spellings(model: str) -> list[str]:
    """Ways to write a name in a path: clients differ in what they quote, slashes above all."""
    return sorted({quote(model, safe=safe) for safe in (f"/{_UNQUOTED}", _UNQUOTED, "/", "")})


@Kept
def _list_route(path: str, listing: str) -> route_components_pb2.Route:
    return direct({"path": path, "headers": [READ]}, {"status": 200, "body": {"inline_string": listing}})


@Kept
def _model_route(key: ServiceKey, model: str) -> route_components_pb2.Route:
    spelled = re.sub("%[0-9A-F]{2}", r"(?i:\g<0>)", "|".join(map(re.escape, spellings(model))))
    path = f"(/{re.escape(str(key))})?{names.MODELS_PATH}/({spelled})"
    body = {"inline_string": compact_json(_model(model, key.namespace))}
    return direct({"safe_regex": {"regex": path}, "headers": [READ]}, {"status": 200, "body": body})


@Kept
def _listing(models: tuple[tuple[str, str], ...]) -> str:
    """OpenAI's list of models, from pairs of name and namespace."""
    return compact_json({"object": "list", "data": [_model(*each) for each in sorted(models)]})


def _model(model: str, namespace: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": 0, "owned_by": namespace}
