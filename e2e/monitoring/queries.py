"""What the chart's dashboards and alerts ask, and which names they use. Pure but for reading the files."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.cluster.places import REPOSITORY

FILES = REPOSITORY / "charts/headrace/files"
RULES = FILES / "rules.yaml"
_METRIC = re.compile(r"\b(?:headrace|envoy|process)_\w+")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) \(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
SILENT = frozenset(
    {
        "gateway, 5xx of engines, by service",
        "gateway, Refused by the picker",
        "gateway, Streams whose engine was lost or stopped",
        "gateway, Pause of a stream that changed its engine",
        "gateway, Streams that wait for room",
        "gateway, Requests that went on without the picker",
        "operator, What is not as it should be",
        "service, Answers at the gateway",  # what the picker refused, besides what the engines answered
    }
)
"""Panels with a query that has no answer while nothing goes wrong."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; `where` says which panel or alert asks."""

    where: str
    expression: str
    legend: str = ""

    @property
    def metrics(self) -> frozenset[str]:
        """List every metric that the query names."""
        return frozenset(_METRIC.findall(self.expression)) - self.labels  # Envoy's begin like its metrics

    @property
    def labels(self) -> frozenset[str]:
        """Every label that it matches, groups or joins by, or shows."""
        grouped = (name.strip() for part in _GROUPING.findall(self.expression) for name in part.split(","))
        shown = re.findall(r"{{(\w+)}}", self.legend)
        return frozenset({*grouped, *_MATCHER.findall(self.expression), *shown} - {""})


def dashboards() -> dict[str, dict[str, Any]]:
    """Read every dashboard by its file's name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FILES.glob("dashboards/*.json"))}


def asked(namespace: str, service: str, pool: str) -> Iterator[Query]:
    """Yield every query of every dashboard, of one service with all its pods, and of a GPUPool.

    Rates are over five minutes.
    """
    values = {
        "__rate_interval": "5m",
        "datasource": "prometheus",
        "namespace": namespace,
        "service": service,
        "pod": ".*",
        "pool": pool,
    }
    for name, document in dashboards().items():
        yield from of_dashboard(name, document, values)


def of_dashboard(name: str, document: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Query]:
    """Yield a dashboard's queries, with the variables filled in, and those that give them their values."""
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            yield Query(f"{name}, variable {label}", filled(f"count by ({label}) ({selector})", values))
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            expression = filled(target["expr"], values)
            yield Query(f"{name}, {panel['title']}", expression, target.get("legendFormat") or "")


def documented() -> dict[str, set[str]]:
    """Read the labels of every metric in docs/metrics.md, by name."""
    page = (REPOSITORY / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
    return {
        name: set(re.findall(r"`(\w+)`", labels)) | ({"le"} if kind == "histogram" else set())
        for name, kind, labels in rows
    }


def family(sample: str, known: Mapping[str, object]) -> str:
    """Return the metric that a sample belongs to: itself, or the histogram that is known by this name."""
    stem = re.sub(r"_(bucket|count|sum|created)$", "", sample)
    return next((name for name in (stem, f"{stem}_total") if name in known), sample)


def alerts() -> list[dict[str, Any]]:
    """List every alert of the chart."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def filled(expression: str, values: Mapping[str, str]) -> str:
    """Replace Grafana's variables in an expression."""
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    if "$" in expression:
        raise ValueError(f"a variable without a value in {expression}")
    return expression
