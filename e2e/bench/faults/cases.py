"""Which part is killed when: the plan of a campaign, from a seed."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

Part = Literal["kubelet", "kube-apiserver", "operator", "picker", "envoy", "sidecar", "engine"]

COMPONENTS: tuple[Part, ...] = ("kubelet", "kube-apiserver")
"""Programs of the node; the others are containers."""
PARTS: tuple[Part, ...] = (*COMPONENTS, "operator", "picker", "envoy", "sidecar")
"""What no engine may notice."""
APART: Mapping[Part, float] = {"kube-apiserver": 140.0}
"""Seconds from one kill of a part to the next. Kubernetes' own controllers wait for longer each time that
they miss the API server, up to a minute, and begin anew after two minutes without; till then no Service gets
endpoints."""
SERVICES = ("chat", "code")
LONGEST_PAUSE = 2.0
LONGEST_HEAD_START = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One kill: `service` is changed after `pause` seconds, and `head_start` seconds later the kill comes.

    `which` (0 to 1) picks one of several pods, or of the service's engines.
    """

    part: Part
    service: str
    which: float
    pause: float
    head_start: float


def kills(seed: int, rounds: int) -> list[Step]:
    """Plan so many kills of each of PARTS, in an order of its own each round, but the kubelet first.

    A kubelet lets what crashed often wait for minutes; one that has just started knows of no crashes.
    """
    source = random.Random(seed)
    return [_step(source, part) for _ in range(rounds) for part in ("kubelet", *source.sample(PARTS[1:], 5))]


def pause(step: Step, killed: Mapping[str, float], now: float) -> float:
    """Return the seconds until `step` begins; `killed` says when each part was killed last."""
    return max(step.pause, killed.get(step.part, -inf) + APART.get(step.part, 0.0) - now)


def engines(seed: int, count: int) -> list[Step]:
    """Plan so many kills of engines, of the services in turn."""
    source = random.Random(seed)
    return list(_engines(source, count))


def _engines(source: random.Random, count: int) -> Iterator[Step]:
    for number in range(count):
        service = SERVICES[number % len(SERVICES)]
        yield Step("engine", service, source.random(), source.uniform(0, LONGEST_PAUSE), 0.0)


def _step(source: random.Random, part: Part) -> Step:
    return Step(
        part=part,
        service=source.choice(SERVICES),
        which=source.random(),
        pause=source.uniform(0, LONGEST_PAUSE),
        head_start=source.uniform(0, LONGEST_HEAD_START),
    )
