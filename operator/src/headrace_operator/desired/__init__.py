"""From a service to the objects that it owns; pure, one file per kind."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import Body
from headrace_operator.desired.cluster_service import cluster_service
from headrace_operator.desired.deployment import deployment
from headrace_operator.desired.disruption_budget import disruption_budget
from headrace_operator.desired.history import NOTHING_NEW, Rollout
from headrace_operator.desired.llm_route import models_of, reserved_of, route, with_models
from headrace_operator.desired.manifest import Manifest, content_hash, owner, with_content_hash
from headrace_operator.desired.network_policy import network_policy
from headrace_operator.desired.policy_config_map import policy_config_map
from headrace_operator.desired.resource_claims import resource_claim_template
from headrace_operator.settings import Settings

__all__ = [
    "Manifest",
    "content_hash",
    "desired_objects",
    "models_of",
    "owner",
    "reserved_of",
    "without_models",
]


def desired_objects(
    service: LLMService,
    settings: Settings,
    models: Iterable[str],
    live: Body | None,
    rollout: Rollout = NOTHING_NEW,
    *,
    reserved: Iterable[str] = (),
    modulus: str = "",
    turn_group: TurnGroup | None = None,
) -> tuple[Manifest, ...]:
    """Make all objects of the service, in the order to apply them: what a pod needs before the Deployment.

    `models` are the names that the service owns at the gateway, `live` the Deployment that runs now,
    `rollout` how far it got, `reserved` names of its own that its engines do not answer to yet,
    `modulus` that of the gateway's public key, and `turn_group` with whom they take turns on their GPU.
    """
    objects = [
        policy_config_map(service, modulus, turn_group),
        network_policy(service, settings),
        cluster_service(service),
        route(service, models, reserved),
        disruption_budget(service),
    ]
    dra = service.spec.accelerator.dra
    if dra is not None and service.group_claim is None:
        objects.append(resource_claim_template(service, dra))
    return (*map(with_content_hash, objects), deployment(service, settings, live, rollout))


def without_models(service: LLMService, live: Body, lost: Iterable[str]) -> Manifest:
    """Return the live route without the names that belong to others by now."""
    kept = [model for model in (*models_of(live), *reserved_of(live)) if model not in set(lost)]
    return with_content_hash(with_models(service, live, kept))
