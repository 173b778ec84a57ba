"""What all owned objects have in common: metadata, owner, and the hash of what is applied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

from headrace_operator import names
from headrace_operator.api import API_VERSION, Key
from headrace_operator.api.bodies import Body, JsonObject

Manifest = JsonObject


class Owner(Protocol):
    """An LLMService or a GPUPool, as far as what it owns must name it."""

    @property
    def key(self) -> Key:
        """Its kind, namespace and name."""

    @property
    def uid(self) -> str:
        """The uid of its object."""


def manifest(
    owner: Owner,
    api_version: str,
    kind: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    **content: Any,
) -> Manifest:
    """Make an object of `owner`; garbage collection removes it with that, no finalizer needed."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": owner.key.namespace,
            "labels": {**names.labels(owner.key), **(labels or {})},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": owner.key.kind,
                    "name": owner.key.name,
                    "uid": owner.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **content,
    }


def owner(body: Body) -> str | None:
    """Return the uid of an object's controlling owner."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((reference["uid"] for reference in owners if reference.get("controller")), None)


def with_annotations(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """Return the manifest with more annotations."""
    metadata = manifest["metadata"]
    merged = {**metadata.get("annotations", {}), **annotations}
    return {**manifest, "metadata": {**metadata, "annotations": merged}}


def with_content_hash(manifest: Manifest, content: Manifest | None = None) -> Manifest:
    """Return the manifest with the hash of its content, or of what stands for it, as an annotation."""
    return with_annotations(manifest, {names.APPLIED_HASH: content_hash(content or manifest)})


def content_hash(content: Any) -> str:
    """Return 16 hex digits that identify JSON content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
