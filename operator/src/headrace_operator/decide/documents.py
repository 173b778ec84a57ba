"""What a service's engines are given to read, and whether they have it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.contracts import EngineStatus, dumps, text_hash
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import Key, LLMService, policy_document
from headrace_operator.decide.observation import Observation
from headrace_operator.decide.policy_status import policy_in_force


@dataclass(frozen=True, slots=True)
class Documents:
    """Hashes of a policy, and of the group that engines take turns with; empty: none."""

    policy: str
    turn_group: str = ""

    def __str__(self) -> str:
        """Return both in one word."""
        return f"{self.policy}.{self.turn_group}" if self.turn_group else self.policy

    def are_answered_by(self, status: EngineStatus) -> bool:
        """Tell whether an engine has them, or has refused them."""
        answered = self.policy in {status.policy.applied_hash, status.policy.rejected_hash}
        return answered and status.turn_group in {None, self.turn_group}


NO_DOCUMENTS = Documents("")


def wanted_documents(service: LLMService, turn_group: TurnGroup | None) -> Documents:
    """Return what the engines are to have."""
    return Documents(policy_document(service).hash, _hash(dumps(turn_group) if turn_group else None))


def documents_in_force(key: Key, observed: Observation) -> Documents | None:
    """Return what the live ConfigMap hands to the engines; None if it has no policy that can be read."""
    policy = policy_in_force(key, observed)
    if policy is None:
        return None
    data = observed.objects["ConfigMap", names.policy_config_map(key)]["data"]
    return Documents(policy.hash, _hash(data.get(names.TURN_GROUP_FILE)))


def _hash(text: str | None) -> str:
    """Return what a sidecar says that has handed over this text; None: there is none."""
    return text_hash(text.encode()) if text else ""
