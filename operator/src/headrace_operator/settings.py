"""The operator's settings, from environment variables that the chart sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is one variable `HEADRACE_<FIELD>`."""

    sidecar_image: str
    """Image of the sidecar and the plugin installer for new rollouts. Required: it must match the operator's
    release, and only the installation knows its registry."""

    sidecar_image_pull_policy: str = "IfNotPresent"
    """A release's image never changes under its tag, so a node that has it need not ask the registry."""

    system_namespace: str = "headrace-system"
    """Where gateway and operator run: the only namespace that engines accept traffic from."""

    lease: str = "headrace-operator"
    """Name of the Lease in the system namespace. Of the replicas that share it one writes, others wait."""

    pod: str = ""
    """This replica's name, unique in the system namespace. Empty means a new one for each process."""

    gateway_url: str = ""
    """Base of `status.url`; empty means the gateway's Service in the system namespace."""

    gateway_key: str = "headrace-gateway-key"
    """Name of the Secret in the system namespace with which the gateway signs; made if there is none."""

    gateway_api_keys: bool = False
    """Whether the gateway asks for API keys; without, it knows no client by name."""

    watch_namespaces: tuple[str, ...] = ()
    """Empty means all namespaces, which needs cluster-wide RBAC."""

    allow_host_path: bool = False
    """Off, because a hostPath volume gives who may write an LLMService the node's files."""

    allow_service_account: bool = False
    """Off, because a pod has the rights of its ServiceAccount: registry credentials, a cloud's identity."""

    routed_gate: bool = False
    """Whether a pod is ready only when every Envoy of the gateway has its address. Where there is no gateway
    none would become ready."""

    metrics_port: int = 9090
    """/metrics, /healthz and /readyz."""

    @property
    def gateway(self) -> str:
        """Base URL of the gateway, without a slash at the end."""
        return (self.gateway_url or f"http://headrace-gateway.{self.system_namespace}").rstrip("/")


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings from the environment; ValueError names the variable and what it must be."""

    def value(name: str, default: str) -> str:
        return environment.get(f"HEADRACE_{name}", "").strip() or default

    image = value("SIDECAR_IMAGE", "")
    if not image:
        raise ValueError("HEADRACE_SIDECAR_IMAGE is not set: give the image of the Headrace sidecar")
    port = value("METRICS_PORT", "9090")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"HEADRACE_METRICS_PORT={port!r} must be a port number")

    def switch(name: str) -> bool:
        told = value(name, "false").lower()
        if told not in {"true", "false"}:
            raise ValueError(f"HEADRACE_{name}={told!r} must be true or false")
        return told == "true"

    namespaces = value("WATCH_NAMESPACES", "").replace(",", " ").split()
    return Settings(
        sidecar_image=image,
        sidecar_image_pull_policy=value("SIDECAR_IMAGE_PULL_POLICY", "IfNotPresent"),
        system_namespace=value("SYSTEM_NAMESPACE", "headrace-system"),
        lease=value("LEASE", "headrace-operator"),
        pod=value("POD", ""),
        gateway_url=value("GATEWAY_URL", ""),
        gateway_key=value("GATEWAY_KEY", "headrace-gateway-key"),
        gateway_api_keys=switch("GATEWAY_API_KEYS"),
        watch_namespaces=tuple(namespaces),
        allow_host_path=switch("ALLOW_HOST_PATH"),
        allow_service_account=switch("ALLOW_SERVICE_ACCOUNT_NAME"),
        routed_gate=switch("ROUTED_GATE"),
        metrics_port=int(port),
    )
