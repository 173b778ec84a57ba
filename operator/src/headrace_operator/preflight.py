"""What is looked at before a Deployment is written: with one replica, a rollout that fails ends service.

A template that the API server would refuse, or whose claims do not exist, is refused while everything else
is still as it was. Claims of a service that has no Deployment yet may follow it: nothing is lost by waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator.admission import is_denial
from headrace_operator.api import Reason
from headrace_operator.cluster import Cluster
from headrace_operator.desired import Manifest
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.problems import claims_of, missing_claim

_REFUSALS = {400, 422}
_NO_SUCH_FIELD = (
    "failed to create typed patch object"  # which the API server takes for an error of its own: 500
)
_NO_DRY_RUN = "does not support dry run"  # an admission webhook: only the write itself can tell


async def check_deployment(manifest: Manifest, live: Mapping[str, Any] | None, cluster: Cluster) -> None:
    """Raise RefusedError that names the field and the fix, or ApiError; nothing is written.

    `live`: the Deployment as it is now; None: there is none.
    """
    if live is not None:
        await _check_claims(manifest, live, cluster)
    try:
        await cluster.apply(manifest, dry_run=True)
    except ApiError as error:
        if _NO_DRY_RUN in str(error):
            return
        if is_denial(error) or (error.code not in _REFUSALS and _NO_SUCH_FIELD not in str(error)):
            raise
        raise RefusedError(
            Reason.INVALID_SPEC,
            "spec.podTemplate, spec.engine or spec.accelerator: correct what the API server refuses in the "
            f"Deployment: {error}",
        ) from error


async def check_claim_template(manifest: Manifest, cluster: Cluster) -> None:
    """Raise RefusedError if this cluster does not know such claims, or ApiError; nothing is written."""
    try:
        await cluster.apply(manifest, dry_run=True)
    except ApiError as error:
        if error.code != 404:
            raise
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.accelerator.allocation: DRA needs {manifest['apiVersion']}, which this cluster does not "
            "have (it came with Kubernetes 1.34): use DevicePlugin",
        ) from error


async def _check_claims(manifest: Manifest, live: Mapping[str, Any], cluster: Cluster) -> None:
    namespace = manifest["metadata"]["namespace"]
    before = set(claims_of(live["spec"]["template"]).values())
    for volume, claim in claims_of(manifest["spec"]["template"]).items():
        if claim not in before and await cluster.read("PersistentVolumeClaim", namespace, claim) is None:
            problem = missing_claim(volume, claim, namespace)
            raise RefusedError(problem.reason, problem.message)
