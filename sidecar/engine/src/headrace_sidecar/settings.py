"""What the operator tells this sidecar, as environment variables of its container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace_engine.control.paths import DEFAULT_ROOT


class SettingsError(ValueError):
    """An environment variable has a value that can't be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One engine sidecar's settings."""

    root: Path  # HEADRACE_DIR: the folder shared with the engine, the only place that is written
    policy_dir: Path  # HEADRACE_POLICY_DIR: where the service's policy ConfigMap is mounted
    port: int  # HEADRACE_PORT: where this sidecar listens
    engine_url: str  # HEADRACE_ENGINE_URL: vLLM's own HTTP server, asked only when the plugin is silent


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables; raises SettingsError."""
    return Settings(
        root=Path(environment.get("HEADRACE_DIR", DEFAULT_ROOT)),
        policy_dir=Path(environment.get("HEADRACE_POLICY_DIR", "/etc/headrace/policy")),
        port=_port(environment.get("HEADRACE_PORT", "9400")),
        engine_url=environment.get("HEADRACE_ENGINE_URL", "http://127.0.0.1:8000").rstrip("/"),
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise SettingsError(f"HEADRACE_PORT: expected a port from 1 to 65535, got {text!r}")
    return int(text)
