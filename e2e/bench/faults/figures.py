"""What a campaign's records say: whose fault each failed request is, and whether the limits were kept.

Times are seconds on one monotonic clock.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ROUTED_SECONDS = 2.0
"""An engine that died gets no requests after this, and a gateway that is ready again is reached by all."""
RECOVERY_SECONDS = 30.0
OUTAGE_RECOVERY_SECONDS = 60.0
REQUESTS_PER_SECOND = 1.0

Figures = Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a client; `error` is empty if its whole answer came."""

    service: str
    streamed: bool
    sent: float
    ended: float
    status: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Kill:
    """A part was killed `at` a moment, was `back` and all was as asked for (`healed`) at later ones.

    Of an engine also: the service, whether others served it meanwhile (`spare`), and when the first client
    was told that no engine is there (`noticed`; None where others serve).
    """

    part: str
    at: float
    back: float
    healed: float
    service: str = ""
    spare: bool = False
    noticed: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """The API server was away for `seconds`; all was as asked for `healed` seconds after its return."""

    seconds: float
    healed: float
    operator_requests: float


@dataclass(frozen=True, slots=True)
class Away:
    """There was no operator from `began` to `ended`; `policies_kept` by every engine."""

    began: float
    ended: float
    policies_kept: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """What happened to engines and objects beyond what the campaign did itself."""

    engine_restarts: int = 0
    wrong_deletes: int = 0

    def __add__(self, other: "Damage") -> "Damage":
        return Damage(self.engine_restarts + other.engine_restarts, self.wrong_deletes + other.wrong_deletes)


def cause(record: Record, kills: Iterable[Kill]) -> str:
    """Find the kill that excuses the failure of this request, if one does: of its `envoy` or `engine`.

    Or of the `kubelet`: one that has just started calls every pod of its node unready until it has probed it
    (before Kubernetes 1.35), Envoy's too, and the Service of the gateway takes no connections for so long.
    """
    return next((kill.part for kill in kills if _excuses(kill, record)), "")


def _excuses(kill: Kill, record: Record) -> bool:
    match kill.part:
        case "envoy":
            return _overlaps(record, kill.at, kill.back + ROUTED_SECONDS)
        case "engine":
            last = kill.at if kill.spare else kill.back
            return kill.service == record.service and _overlaps(record, kill.at, last + ROUTED_SECONDS)
        case "kubelet":
            return record.status is None and kill.at <= record.sent <= kill.healed + ROUTED_SECONDS
        case _:
            return False


def clear(record: Record) -> bool:
    """Tell whether a client can tell what happened: 502 or 503, or a stream that had begun and broke."""
    return record.status in {502, 503} or (record.status == 200 and record.streamed)


def lost(records: Iterable[Record], kills: Sequence[Kill]) -> list[Record]:
    """List the failed requests that no kill excuses."""
    return [record for record in records if record.error and not cause(record, kills)]


def figures(
    records: Sequence[Record],
    kills: Sequence[Kill],
    damage: Damage,
    away: Away | None = None,
    outage: Outage | None = None,
) -> dict[str, float | Mapping[str, float]]:
    """Sum the campaign up in numbers."""
    causes = [(record, cause(record, kills)) for record in records if record.error]
    by_engine = [record for record, part in causes if part == "engine"]
    noticed = [kill.noticed - kill.at for kill in kills if kill.noticed is not None]
    worst: defaultdict[str, float] = defaultdict(float)
    for kill in kills:
        worst[kill.part] = max(worst[kill.part], round(kill.healed - kill.at, 2))
    found: dict[str, float | Mapping[str, float]] = {
        "kills": len(kills),
        "kills_by_part": dict(Counter(kill.part for kill in kills)),
        "requests": len(records),
        "requests_in_flight_at_kills": sum(
            record.sent < kill.at < record.ended for record in records for kill in kills
        ),
        "requests_lost": len(lost(records, kills)),
        "requests_lost_with_their_envoy": sum(part == "envoy" for _, part in causes),
        "requests_lost_with_their_engine": len(by_engine),
        "connections_refused_after_kubelet_start": sum(part == "kubelet" for _, part in causes),
        "unclear_answers_of_dead_engines": sum(not clear(record) for record in by_engine),
        "engine_restarts": damage.engine_restarts,
        "wrong_deletes": damage.wrong_deletes,
        "worst_recovery_seconds": max((v for part, v in worst.items() if part != "engine"), default=0.0),
        "worst_recovery_seconds_by_part": dict(worst),
    }
    if noticed:
        found["worst_endpoint_gone_seconds"] = round(max(noticed), 2)
    if away:
        during = [record for record in records if _overlaps(record, away.began, away.ended)]
        found["operator_away_seconds"] = round(away.ended - away.began, 1)
        found["operator_away_share"] = float(away.policies_kept and not lost(during, kills))
    if outage:
        found["outage_seconds"] = round(outage.seconds, 1)
        found["outage_healed_seconds"] = round(outage.healed, 2)
        found["outage_operator_requests_per_second"] = round(outage.operator_requests / outage.seconds, 3)
    return found


def broken(figures: Figures) -> list[str]:
    """List the limits that were not kept, as `name value > limit`."""
    limits = {
        "requests_lost": 0.0,
        "unclear_answers_of_dead_engines": 0.0,
        "engine_restarts": 0.0,
        "wrong_deletes": 0.0,
        "worst_recovery_seconds": RECOVERY_SECONDS,
        "worst_endpoint_gone_seconds": ROUTED_SECONDS,
        "outage_healed_seconds": OUTAGE_RECOVERY_SECONDS,
        "outage_operator_requests_per_second": REQUESTS_PER_SECOND,
    }
    told = [
        f"{name} {value} > {limit:g}"
        for name, limit in limits.items()
        if isinstance(value := figures.get(name, 0.0), int | float) and value > limit
    ]
    return told + ["operator_away_share < 1"] * (figures.get("operator_away_share", 1.0) != 1.0)


def _overlaps(record: Record, begin: float, end: float) -> bool:
    return record.sent <= end and record.ended >= begin
