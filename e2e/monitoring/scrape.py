"""Pod monitors as Prometheus' own scrape configurations, as the Prometheus Operator translates them.

The targets are given, with the labels that Kubernetes' discovery would have found; so what the chart's
relabelings make of those labels is what Prometheus makes of them. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]

_LIMITS = {
    "sampleLimit": "sample_limit",
    "labelLimit": "label_limit",
    "labelNameLengthLimit": "label_name_length_limit",
    "labelValueLengthLimit": "label_value_length_limit",
}


@dataclass(frozen=True, slots=True)
class Pod:
    """Where a pod listens, and what discovery says of it."""

    address: str  # host:port of the port that the monitor names
    namespace: str
    name: str
    container: str
    labels: Mapping[str, str] = field(default_factory=dict)


def of_pods(monitor: Manifest, pods: Iterable[Pod], interval: str) -> dict[str, Any]:
    """Make the scrape configuration of a monitor's one endpoint, for these pods."""
    targets = [{"targets": [pod.address], "labels": _discovered(pod)} for pod in pods]
    return {**_common(monitor, interval), "static_configs": targets}


def discovered(monitor: Manifest, pods: Iterable[Manifest]) -> Iterator[Pod]:
    """Yield what a monitor finds among a cluster's pods: each container with the port that it names."""
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            for port in container.get("ports", ()):
                if port.get("name") == endpoint["port"]:
                    address = f"{pod['status']['podIP']}:{port['containerPort']}"
                    labels = metadata.get("labels", {})
                    yield Pod(address, metadata["namespace"], metadata["name"], container["name"], labels)


def _common(monitor: Manifest, interval: str) -> dict[str, Any]:
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    name = monitor["metadata"]["name"]
    return {
        "job_name": name,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "metrics_path": endpoint.get("path", "/metrics"),
        "params": endpoint.get("params", {}),
        "honor_labels": endpoint.get("honorLabels", False),
        **{limit: monitor["spec"][name] for name, limit in _LIMITS.items() if name in monitor["spec"]},
        "relabel_configs": [
            *(
                {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
                for source, target in (
                    ("namespace", "namespace"),
                    ("pod_name", "pod"),
                    ("pod_container_name", "container"),
                )
            ),
            *map(_relabeling, endpoint.get("relabelings", ())),
        ],
        "metric_relabel_configs": [*map(_relabeling, endpoint.get("metricRelabelings", ()))],
    }


def _relabeling(rule: Manifest) -> dict[str, Any]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(key, key): value for key, value in rule.items()}


def _discovered(pod: Pod) -> dict[str, str]:
    labels = {f"__meta_kubernetes_pod_label_{_identifier(key)}": value for key, value in pod.labels.items()}
    return {
        "__meta_kubernetes_namespace": pod.namespace,
        "__meta_kubernetes_pod_name": pod.name,
        "__meta_kubernetes_pod_container_name": pod.container,
        **labels,
    }


def _identifier(label: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in label)
