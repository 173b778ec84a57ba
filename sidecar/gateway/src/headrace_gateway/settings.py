"""The settings of picker and relay, from the environment that the chart writes."""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_BODY_BYTES = 4 << 20
MEMORY_BYTES = 512 << 20
_NEEDED = (  # variables, each with another that needs it
    ("HEADRACE_POD_NAMESPACE", "HEADRACE_LEASE"),
    ("HEADRACE_POD_NAME", "HEADRACE_LEASE"),
    ("HEADRACE_POD_IP", "HEADRACE_PEERS"),
    ("HEADRACE_POD_NAMESPACE", "HEADRACE_SERVICE"),
)


class SettingsError(ValueError):
    """A setting is missing or wrong; the message names the variable."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`watch_namespaces` empty means all namespaces; `lease` empty, that this is the only picker.

    `peers` is a host name with the addresses of all pickers; `pod_ip` is which of them this one has.
    Only an endpoint picker for the gateways of others has `service`, the LLMService in its namespace whose
    engines it chooses, and `tls`. Only the relay has `gateway_key`, the file that it signs with,
    `memory_bytes`, which it may have, and `relay_folder` with the sockets at which it and Envoy listen for
    each other.
    """

    watch_namespaces: tuple[str, ...] = ()
    lease: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_ip: str = ""
    peers: str = ""
    service: str = ""
    tls: bool = True
    address: str = "0.0.0.0"  # noqa: S104  (Envoy and Prometheus come from other pods)
    ads_port: int = 9002  # an endpoint picker's gRPC server, too
    picks_port: int = 9003
    peers_port: int = 9004  # UDP
    http_port: int = 9090
    max_body_bytes: int = MAX_BODY_BYTES
    gateway_key: str = ""
    memory_bytes: int = MEMORY_BYTES
    relay_folder: str = "/run/relay"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read HEADRACE_* variables; raises SettingsError."""
    namespaces = environment.get("HEADRACE_WATCH_NAMESPACES", "")
    for name, by in _NEEDED:
        if environment.get(by) and not environment.get(name):
            raise SettingsError(f"{name} is not set; {by} needs it")
    return Settings(
        lease=environment.get("HEADRACE_LEASE", ""),
        pod_namespace=environment.get("HEADRACE_POD_NAMESPACE", ""),
        pod_name=environment.get("HEADRACE_POD_NAME", ""),
        pod_ip=environment.get("HEADRACE_POD_IP", ""),
        peers=environment.get("HEADRACE_PEERS", ""),
        service=environment.get("HEADRACE_SERVICE", ""),
        tls=_is_on(environment, "HEADRACE_TLS"),
        watch_namespaces=tuple(name.strip() for name in namespaces.split(",") if name.strip()),
        gateway_key=environment.get("HEADRACE_GATEWAY_KEY", ""),
        max_body_bytes=_positive(environment, "HEADRACE_MAX_BODY_BYTES", MAX_BODY_BYTES),
        memory_bytes=_positive(environment, "HEADRACE_MEMORY_BYTES", MEMORY_BYTES),
    )


def _is_on(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text not in {"", "on", "off"}:
        raise SettingsError(f"{name}={text!r}: give on or off")
    return text != "off"


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise SettingsError(f"{name}={text!r}: give a whole number over 0")
    return int(text)
