"""PodDisruptionBudget NAME: node drains take no more replicas at once than a rollout would."""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.desired.manifest import Manifest, manifest


def disruption_budget(service: LLMService) -> Manifest:
    """Make the budget: `maxUnavailable` down at most, but always one, or nodes could not be drained.

    Replicas that are not ready never block a drain.
    """
    return manifest(
        service,
        "policy/v1",
        "PodDisruptionBudget",
        service.key.name,
        spec={
            "selector": {"matchLabels": names.pod_labels(service.key)},
            "maxUnavailable": max(1, service.spec.disruption.max_unavailable),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
