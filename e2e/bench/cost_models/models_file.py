"""The catalogue's file of cost models: read, and written with a line for each entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.cluster.places import REPOSITORY

PATH = REPOSITORY / "engine_patches/src/headrace_engine/cost/models.json"
Document = dict[str, Any]


def read(path: Path = PATH) -> Document:
    """Read the file."""
    document: Document = json.loads(path.read_text("utf-8"))
    return document


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
