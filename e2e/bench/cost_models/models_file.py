"""The catalogue's file of cost models: read, one entry put into it, written with a line for each entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.bench.cost_models.architectures import Architecture
from e2e.cluster.places import REPOSITORY

PATH = REPOSITORY / "engine_patches/src/headrace_engine/cost/models.json"
Document = dict[str, Any]


def read(path: Path = PATH) -> Document:
    """Read the file."""
    document: Document = json.loads(path.read_text("utf-8"))
    return document


def put(document: Document, entry: Document, architecture: Architecture) -> Document:
    """Return the document with this knee, in the place of the one for the same model, GPUs and engine."""
    key = _key(entry)
    at = next((at for at, each in enumerate(document["knee"]) if _key(each) == key), len(document["knee"]))
    knees = [*document["knee"][:at], entry, *document["knee"][at + 1 :]]
    need = {
        "kv_bytes_per_token": architecture.kv_bytes_per_token,
        "weight_bytes": architecture.weight_bytes,
    }
    models = document["models"] | {entry["model"]: need}
    return document | {"models": models, "knee": knees}


def write(document: Document, path: Path = PATH) -> None:
    """Write the file."""
    path.write_text(as_text(document), encoding="utf-8")


def as_text(document: Document) -> str:
    """Write a line for each entry of a table or list."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            shown = "[\n" + ",\n".join(f"  {json.dumps(each)}" for each in value) + "\n ]"
        elif isinstance(value, dict):
            rows = (f"  {json.dumps(key)}: {json.dumps(each)}" for key, each in value.items())
            shown = "{\n" + ",\n".join(rows) + "\n }"
        else:
            shown = json.dumps(value)
        parts.append(f" {json.dumps(name)}: {shown}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _key(entry: Document) -> tuple[str, str, int, str]:
    return entry["model"], entry["gpu"], entry["tensor_parallel"], entry["engine"]
