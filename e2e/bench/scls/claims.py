"""What the SCLS paper claims, claim by claim, with what comes out here.

A claim's sign holds if our figures lie on its side of a bound, at every rate where there are several, in the
mean over seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from e2e.bench.scls import cases
from e2e.bench.scls.averages import Found, Make, like, mean, ratio_of_means
from e2e.bench.scls.cases import RATES, STATIC, ContinuousCase, EngineName, StaticCase
from e2e.bench.scls.static_batching import SCHEMES

Side = Literal["more", "less"]
Ends = tuple[float, float]

LATENCIES: Sequence[tuple[str, str, Side]] = (
    ("throughput", "throughput", "more"),
    ("response_mean", "mean response time", "less"),
    ("response_p95", "95 % response time", "less"),
)
OVERALL: Sequence[tuple[EngineName, str, Sequence[Ends]]] = (
    ("HF", "SLS", ((3.323, 4.158), (0.151, 0.176), (0.190, 0.202))),
    ("DS", "SLS", ((1.825, 2.919), (0.089, 0.192), (0.111, 0.234))),
    ("DS", "ILS", ((1.616, 2.710), (0.117, 0.216), (0.142, 0.254))),
)
"""The paper's SCLS over another scheduler, for each of `LATENCIES`."""
BATCH_SIZES: Mapping[EngineName, Ends] = {"HF": (2.003, 3.261), "DS": (1.432, 1.861)}
ERRORS: Mapping[EngineName, float] = {"HF": 2.3, "DS": 0.4}  # seconds, over 128 iterations
WHY = {
    "SLS": "lengths are not CodeFuse's, which were never published",
    "ILS": "FastGen's defaults use the whole KV cache; ILS falls behind only if held to few at once",
    "LB": "every worker is behind all the time at this rate: balance changes when the last one ends",
    "slices": "lengths: 81 % of these answers have 512 tokens or fewer",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: our `figures` are to be more, or less, than `bound`.

    `paper`: its lowest and highest figure, None where it tells the sign alone. `why`: where we differ.
    """

    key: str
    words: str
    side: Side
    figures: Sequence[float]
    bound: float = 1.0
    paper: Ends | None = None
    why: str = ""

    @property
    def holds(self) -> bool:
        """Tell whether all of our figures are on the claimed side."""
        return all(each > self.bound if self.side == "more" else each < self.bound for each in self.figures)


def all_claims(found: Found) -> dict[str, list[Claim]]:
    """Return the paper's claims by the section in which it makes them."""
    return {
        "Overall performance (5.2)": [
            *overall(found),
            *(each for name in STATIC for each in inside(found, name)),
        ],
        "Load balance (5.3)": balance(found),
        "Ablation (5.4)": [each for name in STATIC for each in ablation(found, name)],
        "Slice length (5.5)": [each for name in STATIC for each in slice_lengths(found, name)],
        "Scalability (5.6)": [scalability(found, name) for name in STATIC],
        "Estimates (4.2)": [estimates(found, name) for name in STATIC],
    }


def overall(found: Found) -> list[Claim]:
    """Compare throughput and response times with sequence-level and iteration-level scheduling."""
    made = []
    for engine, other, papers in OVERALL:
        for (figure, words, side), paper in zip(LATENCIES, papers, strict=True):
            key = f"{figure}_of_{other.lower()}_{engine.lower()}"
            ratios = _by_rate(found, figure, _static(engine, "SCLS"), _other(engine, other))
            made.append(
                Claim(key, f"{engine}: {words}, SCLS / {other}", side, ratios, paper=paper, why=WHY[other])
            )
    return made


def inside(found: Found, engine: EngineName) -> list[Claim]:
    """Look at what makes the difference: batches, padding, tokens after the end, slices."""
    scls, sls, end = _static(engine, "SCLS"), _static(engine, "SLS"), engine.lower()
    first, last = RATES[0], RATES[-1]
    sizes, padding, few, early = (
        [mean(found, figure, scls, rate).value for rate in RATES]
        for figure in ("batch_size", "padded_tokens", "three_slices", "returned_early")
    )
    of_sls = {figure: _by_rate(found, figure, scls, sls) for figure in ("batch_size", "invalid_tokens")}
    rates = f"at {last} / at {first} requests/s"
    return [
        Claim(
            f"batch_size_of_sls_{end}",
            f"{engine}: batch size, SCLS / SLS",
            "more",
            of_sls["batch_size"],
            paper=BATCH_SIZES[engine],
        ),
        Claim(
            f"invalid_tokens_of_sls_{end}",
            f"{engine}: tokens generated after the end, SCLS / SLS",
            "less",
            of_sls["invalid_tokens"],
        ),
        Claim(f"batch_size_growth_{end}", f"{engine}: batch size, {rates}", "more", [sizes[-1] / sizes[0]]),
        Claim(f"padding_growth_{end}", f"{engine}: padding, {rates}", "less", [padding[-1] / padding[0]]),
        Claim(
            f"three_slices_{end}",
            f"{engine}: share of the requests that end within three slices (most of them)",
            "more",
            few,
            bound=0.5,
            why=WHY["slices"],
        ),
        Claim(
            f"returned_early_{end}",
            f"{engine}: share of the batches that end before their slice",
            "less",
            early,
            bound=0.01,
            paper=(0.0, 0.01),
        ),
    ]


def balance(found: Found) -> list[Claim]:
    """Compare the deviation of the times at which workers end."""
    made = []
    for engine, other, _ in OVERALL:
        made.append(
            Claim(
                f"completion_deviation_of_{other.lower()}_{engine.lower()}",
                f"{engine}: deviation of the times at which workers end, SCLS / {other}",
                "less",
                _by_rate(found, "completion_deviation", _static(engine, "SCLS"), _other(engine, other)),
                why="no queue is left when arrivals end, so workers end with them" if other == "ILS" else "",
            )
        )
    return made


def ablation(found: Found, engine: EngineName) -> list[Claim]:
    """Compare each part with the one before it, at the middle rate."""

    def compared(figure: str, words: str, side: Side, after: str, before: str) -> Claim:
        return Claim(
            f"{figure}_{after.lower()}_of_{before.lower()}_{engine.lower()}",
            f"{engine}: {words}, {after} / {before}",
            side,
            [ratio_of_means(found, figure, _static(engine, after), _static(engine, before))],
            why=WHY["LB"] if (after, figure) == ("LB", "response_mean") else "",
        )

    steps = [
        compared(figure, words, side, after, before)
        for before, after in itertools.pairwise(SCHEMES)
        for figure, words, side in LATENCIES[:2]
    ]
    return [
        *steps,
        compared("batch_size", "batch size", "more", "AB", "PM"),
        compared("padded_tokens", "padding", "more", "AB", "PM"),
    ]


def slice_lengths(found: Found, engine: EngineName) -> list[Claim]:
    """Look at slices from the shortest to the longest, at the middle rate."""

    def by_slice(figure: str) -> list[float]:
        return [
            mean(found, figure, like(StaticCase(engine, "SCLS", slice=tokens))).value
            for tokens in cases.SLICES
        ]

    through, end = by_slice("throughput"), engine.lower()
    ends = f"slices of {cases.SLICES[-1]:,} / of {cases.SLICES[0]} tokens"
    compared: Sequence[tuple[str, str, Side]] = (
        ("batch_size", "batch size", "less"),
        ("invalid_tokens", "tokens generated after the end", "more"),
        ("padded_tokens", "padding", "less"),
    )
    ratios = {figure: (each := by_slice(figure))[-1] / each[0] for figure, _, _ in compared}
    early = by_slice("returned_early")
    return (
        [
            Claim(
                f"best_slice_of_{which}_{end}",
                f"{engine}: throughput, the best slice / {which} ({_best(through)} / {tokens:,} tokens)",
                "more",
                [max(through) / through[place]],
            )
            for which, place, tokens in (("shortest", 0, cases.SLICES[0]), ("longest", -1, cases.SLICES[-1]))
        ]
        + [
            Claim(f"{figure}_long_of_short_{end}", f"{engine}: {words}, {ends}", side, [ratios[figure]])
            for figure, words, side in compared
        ]
        + [
            Claim(
                f"returned_early_long_{end}",
                f"{engine}: share of the batches that end early, slices of {cases.SLICES[-1]:,} tokens"
                f" ({early[0]:.2g} of {cases.SLICES[0]})",
                "more",
                early[-1:],
                bound=early[0],
            )
        ]
    )


def _best(through: Sequence[float]) -> int:
    return cases.SLICES[through.index(max(through))]


def scalability(found: Found, engine: EngineName) -> Claim:
    """Compare throughput with twice the workers, at the middle rate."""
    through = [
        mean(found, "throughput", like(StaticCase(engine, "SCLS", workers=workers))).value
        for workers in cases.WORKERS
    ]
    return Claim(
        f"throughput_doubled_{engine.lower()}",
        f"{engine}: throughput with twice the workers, 1 to {cases.WORKERS[-1]} of them (linear)",
        "more",
        [after / before for before, after in itertools.pairwise(through)],
        bound=1.8,
        paper=(2.0, 2.0),
    )


def estimates(found: Found, engine: EngineName) -> Claim:
    """Look at how far estimates of a batch's time were off."""
    bound = ERRORS[engine]
    return Claim(
        f"estimate_error_{engine.lower()}",
        f"{engine}: root mean square error of a batch's estimated time, s",
        "less",
        [mean(found, "estimate_rms_error", _static(engine, "SCLS"), rate).value for rate in RATES],
        bound=bound,
        paper=(0.0, bound),
    )


def _static(engine: EngineName, scheme: str) -> Make:
    return like(StaticCase(engine, scheme))


def _other(engine: EngineName, name: str) -> Make:
    return like(ContinuousCase("FastGen")) if name == "ILS" else _static(engine, name)


def _by_rate(found: Found, figure: str, ours: Make, theirs: Make) -> list[float]:
    return [ratio_of_means(found, figure, ours, theirs, rate) for rate in RATES]
