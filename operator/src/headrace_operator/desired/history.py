"""What a Deployment remembers in its annotations: the template that was ready last, and what was given up.

It is kept there and nowhere else: who may write a Deployment may run any pod anyway, so what the operator
takes from it gives nobody more than he has.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from headrace_operator import names
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.desired.manifest import content_hash

# Characters. All annotations of an object may have 256 KiB; a template above this cannot be gone back to.
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class LastReady:
    """A template of which all replicas were ready."""

    inputs: str  # hash of `spec`
    rendering: str  # hash of the template as it was rendered
    runtime: str  # sidecar image
    load_seconds: int  # the longest that one of its engines took from start to ready; 0: unknown
    spec: JsonObject = field(hash=False)  # the blocks that shape pods
    template: JsonObject = field(hash=False)

    @property
    def identity(self) -> tuple[str, str, str]:
        """What tells this template from others."""
        return self.inputs, self.rendering, self.runtime


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Inputs that were given up; they are not tried again until they change."""

    inputs: str
    message: str  # what failed, and what to change


@dataclass(frozen=True, slots=True)
class Rollout:
    """How the rollout of the live template goes."""

    load_seconds: int | None = None  # set when all replicas have it and are ready
    failure: str = ""  # why it cannot succeed; empty: it still may
    rolled_back: RolledBack | None = None


NOTHING_NEW = Rollout()


def recorded_annotation(live: Body | None, annotation: str) -> str | None:
    """Read an annotation that a live Deployment may bear."""
    return ((live or {}).get("metadata", {}).get("annotations") or {}).get(annotation)


def running_inputs(live: Body | None) -> JsonObject | None:
    """Return the blocks of the spec that the live template was made from; None if they are not known."""
    asked, ready = recorded_annotation(live, names.INPUTS_HASH), last_ready(live)
    try:
        spec = json.loads(recorded_annotation(live, names.INPUTS) or "null")
    except ValueError:
        spec = None
    if isinstance(spec, dict) and content_hash(spec) == asked:
        return spec
    return ready.spec if ready is not None and ready.inputs == asked else None


def inputs_annotation(live: Body | None, inputs: str, spec: Body) -> dict[str, str]:
    """Write down what the template is made from.

    A Deployment that a release without this annotation made gets it with its next template: to add it alone
    would be a change.
    """
    told = (
        live is None
        or recorded_annotation(live, names.INPUTS_HASH) != inputs
        or recorded_annotation(live, names.INPUTS)
    )
    text = json.dumps(spec, sort_keys=True)
    return {names.INPUTS: text} if told and len(text) <= _LONGEST else {}


def last_ready(live: Body | None) -> LastReady | None:
    """Read which template was ready last; None also when what is written cannot be read."""
    text = recorded_annotation(live, names.LAST_READY)
    try:
        return LastReady(**json.loads(text)) if text else None
    except (ValueError, TypeError):
        return None


def rolled_back(live: Body | None) -> RolledBack | None:
    """Read what was given up, if anything."""
    text = recorded_annotation(live, names.ROLLED_BACK)
    try:
        return RolledBack(**json.loads(text)) if text else None
    except (ValueError, TypeError):
        return None


def history_annotations(ready: LastReady | None, given_up: RolledBack | None) -> dict[str, str]:
    """Write down the template that was ready last, and what was given up."""
    found = {names.LAST_READY: ready, names.ROLLED_BACK: given_up}
    texts = {name: json.dumps(asdict(entry), sort_keys=True) for name, entry in found.items() if entry}
    return {name: text for name, text in texts.items() if len(text) <= _LONGEST}
