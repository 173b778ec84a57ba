"""What the Envoys that are connected here have acknowledged of each service. Pure, but for the clock given.

An Envoy that refuses a configuration keeps the one before, so what counts is the last one that it took. One
that owes an answer for `SILENT_SECONDS`, or has had no configuration at all and so serves nobody yet, holds
up nobody's pods, and counts as one that has not got it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace_gateway.xds.snapshot import ENDPOINTS, ROUTES, TYPES, Resources, Snapshot

SILENT_SECONDS = 10.0
MESSAGE_LENGTH = 512  # of what is kept of its words


@dataclass(slots=True, eq=False)
class Subscription:
    """What one Envoy has asked for and been sent, of one type."""

    names: frozenset[str] = frozenset()
    sent: str | None = None  # version; None = send
    had: bool = False  # something, when it connected
    offered: Resources | None = None  # the last that was sent
    offered_at: float = 0.0
    taken: Resources | None = None  # the last that it acknowledged
    refusal: str = ""  # its words about what was offered

    def record_offer(self, resources: Resources, now: float) -> None:
        """Note that Envoy is sent these resources now."""
        self.sent, self.offered, self.offered_at, self.refusal = resources.version, resources, now, ""

    def record_unchanged(self, resources: Resources) -> None:
        """Note that these resources read like the last that were sent, which stand for them now."""
        if self.taken is self.offered:
            self.taken = resources
        self.offered = resources

    def record_answer(self, nonce: str, version: str, refusal: str = "") -> None:
        """Take an answer to what bears this nonce: Envoy has `version`, or says why it refuses.

        Whenever it asks for something else it gives the last nonce again, also of what it has refused.
        """
        if self.offered is None or nonce != self.offered.version:
            return
        if refusal:
            self.refusal = refusal
        elif version == self.offered.version:
            self.taken, self.refusal = self.offered, ""

    def is_silent(self, now: float) -> bool:
        """Tell whether Envoy owes an answer for too long."""
        owes = self.offered is not self.taken and not self.refusal
        return owes and now - self.offered_at > SILENT_SECONDS

    def has_acknowledged(self, service: str, current: Resources) -> bool:
        """Tell whether Envoy acknowledged what is current of a service."""
        return (
            self.taken is not None
            and service in self.taken.parts
            and self.taken.parts[service] == current.parts.get(service)
        )


NOTHING = Resources("", ())
Envoy = Mapping[str, Subscription]  # by type URL


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a service's configuration got."""

    envoys: int  # connected
    having: int  # that have all of it
    pods: frozenset[str] = field(default_factory=frozenset)  # UIDs of those whose addresses all of them have
    refusal: str = ""  # one's words


def measure_progress(service: str, current: Snapshot, envoys: Collection[Envoy], now: float) -> Progress:
    """Tell how far `service` (`namespace/name`) of the current snapshot is, at `now` on the offers' clock."""
    if service not in current.get(ROUTES, NOTHING).parts:
        return Progress(len(envoys), 0)  # it was refused, or nothing is known yet
    having, refusal = 0, ""
    sets = []
    for envoy in envoys:
        missing = [kind for kind in TYPES if not _has(envoy, kind, service, current)]
        having += not missing
        refusal = next((envoy[k].refusal for k in missing if k in envoy and envoy[k].refusal), refusal)
        serves = any(each.had or each.taken for each in envoy.values())
        if serves and not any(each.is_silent(now) for each in envoy.values()):
            sets.append(_pods(envoy, service))
    pods = frozenset.intersection(*sets) if sets else frozenset()
    return Progress(len(envoys), having, pods, refusal)


def _has(envoy: Envoy, kind: str, service: str, current: Snapshot) -> bool:
    return kind in envoy and envoy[kind].has_acknowledged(service, current[kind])


def _pods(envoy: Envoy, service: str) -> frozenset[str]:
    """Return the UIDs of engines to which this Envoy sends requests for the service as soon as they serve."""
    parts = [envoy[kind].taken.parts if _is_taken(envoy, kind) else {} for kind in TYPES]  # type: ignore[union-attr]
    if not all(service in each for each in parts):
        return frozenset()
    pods: frozenset[str]
    _, pods = parts[TYPES.index(ENDPOINTS)][service]  # type: ignore[misc]
    return pods


def _is_taken(envoy: Envoy, kind: str) -> bool:
    return kind in envoy and envoy[kind].taken is not None
