"""From the service's ConfigMap to the engine: the policy document, checked on the way.

The kubelet swaps the mounted file by a symbolic link; a `stat` per look notices. A document that this runtime
can't run is not handed over: the engine keeps the last good one, and the refusal is reported with its reason
until a good one comes. The engine's copy outlives this process, so a restart of the sidecar changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace_engine.contracts import ContractError, PolicyDocument
from headrace_engine.control.policy_file import PolicyFile, write_policy

log = logging.getLogger(__name__)

REMEMBERED = 16  # names of policies by hash; the engine is at most a few documents behind


@dataclass(frozen=True, slots=True)
class Refusal:
    """A document that was not handed over. `hash` is empty if it could not even be read."""

    hash: str
    error: str


class Handover:
    """Watches `source` and keeps `target`, the engine's copy, at the last document that `validate` accepts.

    `validate` raises ContractError with a message for people.
    """

    def __init__(self, source: Path, target: Path, validate: Callable[[PolicyDocument], None]) -> None:
        self._source = source
        self._target = target
        self._validate = validate
        self._watch = PolicyFile(source)
        self._names: dict[str, str] = {}
        self.given = ""  # hash of the document that the engine was given
        self.given_at = float("-inf")  # when, on the clock of `hand_over_new`
        self.refusal: Refusal | None = None
        self._adopt_earlier()

    def hand_over_new(self, now: float) -> None:
        """Hand over the source's document if it is new and good; `now` is a monotonic clock in seconds."""
        try:
            document = self._watch.poll()
            if document is None:
                return
            if document.hash != self.given:
                self._check(document)
                write_policy(self._target, document)
                self.given_at = now
                log.info("policy %s (%s) handed to the engine", document.policy, document.hash)
        except ContractError as error:
            self._refuse(str(error))
        except OSError as error:
            self._watch = PolicyFile(self._source)
            self._refuse(f"cannot write {self._target}: {error.strerror}")
        else:
            self._record_given(document)

    def policy_name(self, document_hash: str) -> str:
        """Return the policy of a document handed over lately; empty if it is not known."""
        return self._names.get(document_hash, "")

    def _check(self, document: PolicyDocument) -> None:
        if len(document.hash) != 16 or not set(document.hash) <= set("0123456789abcdef"):
            raise ContractError(f"PolicyDocument.hash: expected 16 hex digits, got {document.hash!r}")
        self._validate(document)

    def _record_given(self, document: PolicyDocument) -> None:
        self.given = document.hash
        self.refusal = None
        self._names[document.hash] = document.policy
        while len(self._names) > REMEMBERED:
            del self._names[next(iter(self._names))]

    def _adopt_earlier(self) -> None:
        """Take up what an earlier life of this sidecar gave to the engine."""
        try:
            earlier = PolicyFile(self._target).poll()
        except ContractError:
            return
        if earlier is not None:
            self._record_given(earlier)

    def _refuse(self, error: str) -> None:
        refusal = Refusal(_claimed_hash(self._source), error)
        if refusal != self.refusal:
            log.error("policy document %s refused: %s", refusal.hash or "(unreadable)", error)
        self.refusal = refusal


def _claimed_hash(path: Path) -> str:
    """Return the hash that a refused document gives itself; empty if it has none that could be told."""
    try:
        claimed = json.loads(path.read_bytes())["hash"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return claimed if isinstance(claimed, str) and len(claimed) <= 64 else ""
