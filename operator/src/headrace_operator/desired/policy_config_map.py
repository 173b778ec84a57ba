"""ConfigMap NAME-policy: what the sidecar, into which it is mounted, hands to the engine."""

from __future__ import annotations

from headrace_engine.contracts import dumps
from headrace_engine.contracts.resume_arguments import ResumeKey
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import LLMService, policy_document
from headrace_operator.desired.manifest import Manifest, manifest


def policy_config_map(service: LLMService, modulus: str, turn_group: TurnGroup | None) -> Manifest:
    """Make the ConfigMap that engines schedule by; a change reaches them without a new pod template.

    `modulus`, of the gateway's public key, is that of a `ResumeKey`; empty means none. `turn_group`: with
    whom they take turns on their GPU.
    """
    data = {names.POLICY_FILE: dumps(policy_document(service))}
    if modulus:
        data[names.RESUME_KEY_FILE] = dumps(ResumeKey(names.qualified(service.key), modulus))
    if turn_group is not None:
        data[names.TURN_GROUP_FILE] = dumps(turn_group)
    return manifest(
        service,
        "v1",
        "ConfigMap",
        names.policy_config_map(service.key),
        data=data,
    )
