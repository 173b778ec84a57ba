"""Checks a write before anything is written: whether it takes what is someone else's, or would be refused.

With one replica a rollout that fails ends service. So a template that the API server would refuse, or whose
PersistentVolumeClaims do not exist, is refused while everything else is still as it was. The claims of a
service that has no Deployment yet may follow it: nothing is lost by waiting.
"""

from __future__ import annotations

from typing import Protocol

from headrace_operator import names
from headrace_operator.api import Reason, is_paused
from headrace_operator.api.bodies import Body
from headrace_operator.decide.admission import is_denial
from headrace_operator.decide.plan import Apply, target_of
from headrace_operator.decide.pod_problems import missing_pvc, pvcs_of
from headrace_operator.desired import Manifest, owner
from headrace_operator.desired.manifest import Owner
from headrace_operator.errors import ApiError, RefusedError, TransientError
from headrace_operator.kube.client import Cluster

_REFUSALS = {400, 422}
_CLAIMS = {"ResourceClaimTemplate", "ResourceClaim"}
_NO_SUCH_FIELD = (
    "failed to create typed patch object"  # which the API server takes for an error of its own: 500
)
_NO_DRY_RUN = "does not support dry run"  # an admission webhook: only the write itself can tell
_COLLECT_RETRY_SECONDS = 2.0  # until the garbage collector may have removed what a deleted service owned
_STALE_RETRY_SECONDS = 1.0  # the watch is late, and its event will come earlier or not at all


class SeenOwner(Owner, Protocol):
    """The LLMService or GPUPool whose objects are written, as it was seen."""

    @property
    def generation(self) -> int:
        """The generation of its spec."""


async def check_apply(seen: SeenOwner, action: Apply, cluster: Cluster, *, was_refused: bool) -> None:
    """Raise RefusedError, ApiError or TransientError where something stands against a write.

    What was refused before is tried as a dry run, or the objects before it would be written for nothing.
    """
    kind, name = target_of(action)
    found = None
    if action.creates or kind == "Deployment":
        found = await cluster.read(kind, seen.key.namespace, name)
    if action.creates:
        _check_free(seen, kind, name, found)
    if kind == "Deployment":
        await _check_deployment(action.manifest, found, cluster)
    elif kind in _CLAIMS:
        await _check_claim(action, cluster)
    elif was_refused:
        await cluster.apply(action.manifest, dry_run=True)


async def check_unchanged(seen: SeenOwner, cluster: Cluster) -> None:
    """Raise TransientError unless the owner is still as it was seen, before what cannot be taken back.

    That is a deletion, and what is made for an owner that is being deleted: it goes, too, as soon as it is
    owned, also if it was there before (`--cascade=orphan`).
    """
    live = await cluster.read(seen.key.kind, seen.key.namespace, seen.key.name)
    metadata = live["metadata"] if live else {}
    found = metadata.get("uid"), metadata.get("generation")
    if is_paused(metadata) or found != (seen.uid, seen.generation):
        raise TransientError(f"the {seen.key.kind} has changed meanwhile", _STALE_RETRY_SECONDS)


def _check_free(seen: SeenOwner, kind: str, name: str, found: Body | None) -> None:
    """Refuse to take an object of someone else's, as an apply would.

    What we made and what nobody owns is ours to go on with: somebody's manifest may have replaced its labels
    and its owner, or its service was deleted with `--cascade=orphan`.
    """
    if found is None or owner(found) == seen.uid:
        return
    metadata = found["metadata"]
    if not metadata.get("ownerReferences") and _is_made_by_us(metadata):
        return
    if names.owner_key_of(found) == seen.key:
        raise TransientError(
            f"{kind} {name} of a deleted {seen.key.kind} is still there", _COLLECT_RETRY_SECONDS
        )
    raise RefusedError(
        Reason.OBJECT_NAME_TAKEN,
        f"metadata.name: {kind} {name} exists and is not Headrace's: delete it or rename the {seen.key.kind}",
    )


def _is_made_by_us(metadata: Body) -> bool:
    """Tell whether the API server has recorded that fields of an object are as we applied them."""
    return any(
        entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        for entry in metadata.get("managedFields") or ()
    )


async def _check_deployment(manifest: Manifest, live: Body | None, cluster: Cluster) -> None:
    """Raise RefusedError that names the field and the fix, or ApiError; nothing is written.

    `live`: the Deployment as it is now; None: there is none.
    """
    if live is not None:
        await _check_pvcs(manifest, live, cluster)
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


async def _check_claim(action: Apply, cluster: Cluster) -> None:
    """Raise RefusedError if this cluster refuses such claims, or ApiError; nothing is written.

    One that exists cannot be changed, only made anew: the new one is tried under another name.
    """
    manifest = action.manifest
    if not action.creates:
        metadata = manifest["metadata"]
        manifest = {**manifest, "metadata": {**metadata, "name": f"{metadata['name']}-new"}}
    try:
        await cluster.apply(manifest, dry_run=True)
    except ApiError as error:
        if error.code == 404:
            raise RefusedError(
                Reason.INVALID_SPEC,
                f"spec.accelerator.dra: needs {manifest['apiVersion']}, which this cluster does not have (it "
                "came with Kubernetes 1.34): use devicePlugin",
            ) from error
        if is_denial(error):
            if action.creates:
                raise
            return  # a quota may count the one that is to go: the write itself tells
        if error.code not in _REFUSALS:
            raise
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.accelerator.dra: correct what the API server refuses in the {manifest['kind']}: {error}",
        ) from error


async def _check_pvcs(manifest: Manifest, live: Body, cluster: Cluster) -> None:
    namespace = manifest["metadata"]["namespace"]
    before = set(pvcs_of(live["spec"]["template"]).values())
    for volume, claim in pvcs_of(manifest["spec"]["template"]).items():
        if claim not in before and await cluster.read("PersistentVolumeClaim", namespace, claim) is None:
            problem = missing_pvc(volume, claim, namespace)
            raise RefusedError(problem.reason, problem.message)
