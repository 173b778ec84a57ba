"""Deployment NAME: the replicas, and the rule that only the service's own changes replace its pods.

The Deployment records what its template was made from (`inputs-hash`, `inputs`), the rendered template itself
(`template-hash`), the sidecar image in it (`runtime`), and the template that was ready last (`last-ready`):

| the service's inputs  | this operator's rendering | template                                              |
|-----------------------|---------------------------|-------------------------------------------------------|
| as when last ready    | any                       | the one that was ready: heals edits                   |
| as recorded           | as recorded               | rendered anew, with the recorded image: heals edits   |
| as recorded           | differs (other release)   | the live one, untouched: upgrades restart no engine   |
| changed               | any                       | rendered anew, with the operator's own sidecar image  |
"""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.desired.engine_container import start_seconds
from headrace_operator.desired.history import (
    NOTHING_NEW,
    LastReady,
    Rollout,
    history_annotations,
    inputs_annotation,
    last_ready,
    recorded_annotation,
)
from headrace_operator.desired.inputs import claim_in, input_blocks
from headrace_operator.desired.manifest import (
    Manifest,
    content_hash,
    manifest,
    with_annotations,
    with_content_hash,
)
from headrace_operator.desired.pod import pod_template
from headrace_operator.settings import Settings

# Seconds in which pods are scheduled and images pulled, and which come on top of what loading may take.
_ARRIVAL_SECONDS = 600
_LONGEST_SECONDS = 2**31 - 1
_LOADING_FACTOR = 5  # of what the model took to load last: disks, networks and neighbours differ


def deployment(
    service: LLMService, settings: Settings, live: Body | None, rollout: Rollout = NOTHING_NEW
) -> Manifest:
    """Make the Deployment, given the one that runs (None: none does) and how its rollout goes."""
    spec = input_blocks(service)
    inputs, ready = content_hash(spec), last_ready(live)
    image, template, rendered = _template(service, settings, live, inputs)
    if rollout.load_seconds is not None and (ready is None or ready.identity != (inputs, rendered, image)):
        current = LastReady(inputs, rendered, image, rollout.load_seconds, spec, template)
        ready = current if _recorded_identity(live) == current.identity else ready
    wanted = manifest(
        service,
        "apps/v1",
        "Deployment",
        service.key.name,
        spec={
            "replicas": service.replicas,
            "selector": {"matchLabels": names.pod_labels(service.key)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": _pace(service, ready),
            },
            "progressDeadlineSeconds": _deadline(start_seconds(service), spec, ready, template),
            "revisionHistoryLimit": 3,
            "template": template,
        },
    )
    wanted = with_annotations(
        wanted,
        {
            names.INPUTS_HASH: inputs,
            **inputs_annotation(live, inputs, spec),
            names.TEMPLATE_HASH: rendered,
            names.RUNTIME: image,
            **history_annotations(ready, rollout.rolled_back),
        },
    )
    # Every change of an annotation moves a Deployment's generation. A release that renders templates
    # otherwise leaves the live one alone and must not move that: the template's hash stands for it.
    return with_content_hash(wanted, {**wanted, "spec": {**wanted["spec"], "template": rendered}})


def _pace(service: LLMService, ready: LastReady | None) -> JsonObject:
    """Say how many replicas are replaced at once, one beside the others if the service's pool says so.

    Else none may start on top where those that leave have its memory: on the devices of the same group.
    """
    if service.surges:
        return {"maxSurge": 1, "maxUnavailable": 0}
    asked = service.spec.disruption
    stays = ready is None or claim_in(ready.spec) == service.group_claim
    if service.group_claim and stays:
        return {"maxSurge": 0, "maxUnavailable": max(asked.max_unavailable, 1)}
    return {"maxSurge": asked.max_surge, "maxUnavailable": asked.max_unavailable}


def _recorded_identity(live: Body | None) -> tuple[str | None, ...]:
    """Return which template runs, in the form of `LastReady.identity`."""
    return tuple(
        recorded_annotation(live, name) for name in (names.INPUTS_HASH, names.TEMPLATE_HASH, names.RUNTIME)
    )


def _deadline(loading: int, spec: Body, ready: LastReady | None, template: Body) -> int:
    """Return the seconds without a pod becoming ready after which a rollout has failed.

    A start that its probe still allows, for `loading` seconds, is still progress, unless this model was seen
    to load sooner. And a pod may have to wait for the accelerator of one that drains.
    """
    if ready is not None and ready.load_seconds and ready.spec["model"] == spec["model"]:
        loading = min(loading, _LOADING_FACTOR * ready.load_seconds)
    templates = [template] if ready is None else [template, ready.template]
    leaving: int = max(each["spec"]["terminationGracePeriodSeconds"] for each in templates)
    return min(_ARRIVAL_SECONDS + loading + leaving, _LONGEST_SECONDS)


def _template(
    service: LLMService, settings: Settings, live: Body | None, inputs: str
) -> tuple[str, JsonObject, str]:
    """Make the template; returns the sidecar's image, the template, and the hash of its rendering."""
    ready = last_ready(live)
    if ready is not None and ready.inputs == inputs:
        return ready.runtime, ready.template, ready.rendering
    pinned = recorded_annotation(live, names.RUNTIME)
    if live is not None and pinned and recorded_annotation(live, names.INPUTS_HASH) == inputs:
        template = pod_template(service, pinned, settings)
        rendered = recorded_annotation(live, names.TEMPLATE_HASH)
        if rendered and content_hash(template) != rendered:
            return pinned, live["spec"]["template"], rendered
        return pinned, template, content_hash(template)
    template = pod_template(service, settings.sidecar_image, settings)
    return settings.sidecar_image, template, content_hash(template)
