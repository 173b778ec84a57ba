"""The LLMServices of a YAML file, checked as the API server and the operator check them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from headrace_operator.api import (
    API_VERSION,
    GROUP,
    KIND,
    POOL_KIND,
    GPUPool,
    LLMService,
    parse_pool,
    parse_service,
)
from headrace_operator.api.bodies import Body
from headrace_operator.api.crd import definition
from headrace_operator.decide import accept
from headrace_operator.errors import RefusedError
from headrace_operator.settings import Settings
from headrace_operator.simulate.usage_error import UsageError

_Object = TypeVar("_Object")

# What only a cluster knows is taken as allowed.
_ANY_CLUSTER = Settings(
    sidecar_image="", allow_host_path=True, allow_service_account=True, gateway_api_keys=True
)


def load_service(path: Path) -> LLMService:
    """Read the one LLMService in the file; UsageError names the file, the field and the fix."""
    found = load_services(path)
    if len(found) > 1:
        listed = ", ".join(service.key.name for service in found)
        raise UsageError(
            f"{path}: {len(found)} {KIND}s ({listed}); keep one of them in the file, or simulate all "
            "with --pool"
        )
    return found[0]


def load_services(path: Path) -> list[LLMService]:
    """Read all LLMServices in the file, at least one; UsageError names the file, the field and the fix."""
    found = _load(path, KIND, _checked)
    if not found:
        raise UsageError(f"{path}: no {KIND} in it; {_contents(path)}")
    return found


def load_pools(path: Path) -> list[GPUPool]:
    """Read all GPUPools in the file; UsageError names the file, the field and the fix."""
    return _load(path, POOL_KIND, parse_pool)


def _load(path: Path, kind: str, parse: Callable[[Body], _Object]) -> list[_Object]:
    """Parse every object of a kind in the file, with the metadata that the API server would add."""
    found = []
    for body in _documents(path):
        if _kind(body) != kind:
            continue
        if body.get("apiVersion") != API_VERSION:
            raise UsageError(f"{path}: apiVersion: {body.get('apiVersion')!r} is not {API_VERSION}")
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str) or not name:
            raise UsageError(f"{path}: metadata.name: missing; each {kind} needs a name")
        try:
            found.append(
                parse({**body, "metadata": {"namespace": "default", "uid": "simulated", **body["metadata"]}})
            )
        except RefusedError as error:
            raise UsageError(f'{path}: the {kind} "{name}" is invalid: {error}') from error
    return found


def _checked(body: Body) -> LLMService:
    for field, known in _unknown(body.get("spec"), _schema(), "spec"):
        raise RefusedError("InvalidSpec", f"{field}: unknown field; there are {', '.join(known)}")
    service = parse_service(body)
    accept.check_accepted(service, _ANY_CLUSTER)
    return service


@functools.cache
def _schema() -> Body:
    """Return the schema of `spec` that the API server has."""
    version = definition()["spec"]["versions"][0]
    schema: Body = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def _documents(path: Path) -> list[Any]:
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(f"{where}: not YAML: {what}") from error
    except (ValueError, AttributeError, RecursionError) as error:  # what PyYAML lets through
        raise UsageError(f"{path}: holds a value that cannot be read: {error}") from error
    items: list[Any] = []
    for document in documents:  # `kubectl get -o yaml` of several wraps them in a List
        inside = document.get("items") if isinstance(document, Mapping) else None
        items += inside if _kind(document).endswith("List") and isinstance(inside, list) else [document]
    return items


def _contents(path: Path) -> str:
    kinds = dict.fromkeys(_kind(body) for body in _documents(path) if body is not None)
    return f"it holds {', '.join(kinds)}" if kinds else "it is empty"


def _kind(body: Any) -> str:
    if not isinstance(body, Mapping):
        return "no object"
    kind = str(body.get("kind", "an object without kind"))
    foreign = kind in {KIND, POOL_KIND} and not str(body.get("apiVersion", "")).startswith(f"{GROUP}/")
    return f"{kind} of another API" if foreign else kind


def _unknown(value: Any, schema: Body, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield fields that the schema does not have, with those it has; `kubectl apply` refuses them too."""
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown(item, schema["items"], f"{path}[{index}]")
    properties = schema.get("properties")
    if not isinstance(value, Mapping) or properties is None:
        return
    for name, inner in value.items():
        if name in properties:
            yield from _unknown(inner, properties[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}", list(properties)
