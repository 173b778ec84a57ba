"""The workloads of the benchmarks by name; docs/benchmarks.md describes them.

`code`, `conversation` and `mooncake` arrive as recorded, stretched to the wanted mean rate; a seed is another
segment of the trace, negative ones are counted from its end. With `-poisson` the same lengths arrive at
random, with `-bursty` at gaps that vary three times their mean; so do the lengths that have no times,
`sharegpt` and `arxiv`. A seed is then another draw. `alpaca_synthetic` and `bookcorpus_synthetic` have
lengths drawn from a paper's table. `mixed` is three services on one engine, each request with targets of its
own, see `MIX`; it arrives at random. `chats` are synthetic chats of several turns with conversation's
lengths; `beginning-4096` are conversation's lengths at random behind a beginning of so many tokens that all
have in common; `servegen-m-small`, `-m-large` and `-deepseek-r1` are generated from descriptions of
production clients, a seed being another hour. Requests that the model's context can't hold are left out,
never cut.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from e2e.data import recorded
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.workloads import servegen, shape, synthetic
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.chats import make_chats

MOONCAKE_GRID = 3.0  # seconds
BURSTY = 3.0  # coefficient of variation of the gaps; between the two Azure services

RECORDED: Mapping[str, Callable[[], Sequence[Arrival]]] = {
    "code": recorded.azure_code,
    "conversation": recorded.azure_conversation,
    "mooncake": recorded.mooncake,
}
LENGTHS: Mapping[str, Callable[[], Sequence[Arrival]]] = {
    **RECORDED,
    "sharegpt": recorded.sharegpt,
    "arxiv": recorded.arxiv,
    "alpaca_synthetic": synthetic.alpaca,
    "bookcorpus_synthetic": synthetic.bookcorpus,
}
VARIATIONS = {"poisson": 1.0, "bursty": BURSTY}
SERVEGEN = "servegen-"
BEGINNING = "beginning-"
BEGINNINGS = (0, 1024, 4096, 16_384)  # tokens


@dataclass(frozen=True, slots=True)
class Share:
    """One service of the mix; each of its requests asks for `targets`."""

    client: str
    lengths: str  # of `LENGTHS`
    percent: int  # of the requests
    targets: Targets


MIX = (
    Share("chat", "conversation", 60, Targets(ttft=1.0, tpot=0.05)),
    Share("code", "code", 30, Targets(e2e=3.0)),
    Share("summary", "arxiv", 10, Targets(ttft=30.0, tpot=0.2)),
)
"""Ours: no trace at hand has targets. Chats are read as they come, a completion is used when it is whole, and
nobody watches a summary of a long text."""


def names() -> list[str]:
    """List the names of all workloads."""
    return [
        *RECORDED,
        *(f"{lengths}-{gaps}" for lengths in LENGTHS for gaps in VARIATIONS),
        "chats",
        *(f"{BEGINNING}{tokens}" for tokens in BEGINNINGS),
        "mixed",
        *(SERVEGEN + service for service in ("m-small", "m-large", "deepseek-r1")),
    ]


def make(name: str, count: int, rate: float, seed: int, longest: int) -> list[Arrival]:
    """Make `count` requests at a mean of `rate` requests/s, `longest` tokens at most; raises ValueError."""
    base, _, gaps = name.partition("-")
    if name not in names():
        raise ValueError(f"there is no workload {name!r}, only {', '.join(names())}")
    if name == "chats":
        return make_chats(recorded.azure_conversation(), count, rate, seed, longest=longest)
    if name.startswith(BEGINNING):
        tokens = int(name.removeprefix(BEGINNING))
        own = shape.keep_fitting(recorded.azure_conversation(), longest - tokens)
        return shape.beginning_alike(shape.draw_renewal(own, count, rate, seed), tokens)
    if name == "mixed":
        return shape.draw_renewal(_mixed(count, seed, longest), count, rate, seed)
    if name.startswith(SERVEGEN):
        return _servegen(name.removeprefix(SERVEGEN), count, rate, seed, longest=longest)
    usable = shape.keep_fitting(LENGTHS[base](), longest)
    if gaps:
        return shape.draw_renewal(usable, count, rate, seed, VARIATIONS[gaps])
    segment = shape.take_segment(usable, count, seed)
    if base == "mooncake":
        segment = shape.spread_times(segment, MOONCAKE_GRID, seed)
    return shape.at_rate(segment, rate)


def count_recorded(name: str, longest: int) -> int | None:
    """Count the requests that a recorded workload has; None for one that any number can be drawn of."""
    return len(shape.keep_fitting(RECORDED[name](), longest)) if name in RECORDED else None


def _mixed(count: int, seed: int, longest: int) -> list[Arrival]:
    """Make `count` requests of the mix, in no order."""
    chance = random.Random(f"mixed {seed}")
    usable = {each.client: shape.keep_fitting(LENGTHS[each.lengths](), longest) for each in MIX}
    made = []
    for service in chance.choices(MIX, [each.percent for each in MIX], k=count):
        request = chance.choice(usable[service.client])
        made.append(replace(request, prefix=(), client=service.client, targets=service.targets))
    return made


def _servegen(service: str, count: int, rate: float, seed: int, *, longest: int) -> list[Arrival]:
    clients = recorded.servegen_clients(service)
    seconds = servegen.WINDOW
    while True:
        made = servegen.generate_requests(clients, seed * 3600, seconds, seed)
        usable = shape.keep_fitting(made, longest)
        if len(usable) >= count:
            return shape.at_rate(usable[:count], rate)
        seconds *= 2
