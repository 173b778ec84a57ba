"""What services are asked over two days: each is one client of a production service, at its rates."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from e2e.bench.traffic_sums import tell
from e2e.data import recorded
from headrace_engine.contracts.traffic import TrafficWindow
from headrace_engine.sim.workloads.servegen import WINDOW, Client, generate_requests
from headrace_operator.api import API_VERSION, KIND
from headrace_operator.api.bodies import JsonObject
from headrace_operator.placement.problem import Request

DAY = 86_400  # seconds
DAYS = range(1, 12)  # of the published fourteen, that a day before and a whole day after it are known of
BUSY_PARTS = 72  # ten minutes of a day in which a client sends, at least
MODELS = {"llama-3-8b": 4, "mistral-nemo-12b": 3, "qwen3-32b": 2}  # with weights
SKEW = 1.2  # of the Pareto distribution of rates: few services have most requests
SLO_SCALE = 5  # times as long as a request takes alone
LONGEST = 8192  # tokens
CHANGE = 2.5  # times the mean, in the busiest hour of who is changing


@dataclass(frozen=True, slots=True)
class DayTraffic:
    """A service and its requests of two days, by time from the beginning of the first."""

    name: str
    model: str
    requests: tuple[Request, ...]

    def as_body(self) -> JsonObject:
        """Return the LLMService as a user writes it: one engine on a GPU of its own."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": "default", "uid": self.name, "generation": 1},
            "spec": {
                "model": {"source": f"hf://example/{self.model}"},
                "engine": {"image": "example/vllm:1", "maxModelLen": LONGEST},
                "accelerator": {"type": "GPU", "dra": {"deviceClassName": "gpu.example.com"}},
                "slo": {"e2eScalePercent": 100 * SLO_SCALE},
            },
        }

    def told(self, start: float, end: float) -> tuple[TrafficWindow, ...]:
        """Return what its sidecars tell of a span of an hour at most."""
        requests = self.between(start, end)
        return tell(requests) if requests else ()

    def between(self, start: float, end: float) -> tuple[Request, ...]:
        """Return its requests of a span, by time from the beginning of that."""
        return tuple(each._replace(at=each.at - start) for each in self.requests if start <= each.at < end)


def draw_services(count: int, rate: float, seed: int, *, changing: bool) -> list[DayTraffic]:
    """Draw services that are asked `rate` requests/s together, on the mean of two days.

    `changing`: only of clients whose busiest hour of the second day has at least `CHANGE` times the mean.
    """
    chance = random.Random(f"replacement {count} {seed}")
    begin = chance.choice(DAYS) * DAY
    clients = [
        client
        for client in recorded.servegen_clients("m-large")
        if _is_busy(client, begin) and (not changing or _busiest(client, begin + DAY) >= CHANGE)
    ]
    parts = [chance.paretovariate(SKEW) for _ in range(count)]
    services = []
    for number, part in enumerate(parts):
        [model] = chance.choices(list(MODELS), list(MODELS.values()))
        client = _at_rate(chance.choice(clients), begin, rate * part / sum(parts))
        arrivals = generate_requests([client], begin, 2 * DAY, chance.randrange(1000))
        requests = tuple(
            Request(each.at, each.prompt_tokens, each.output_tokens)
            for each in arrivals
            if each.prompt_tokens + each.output_tokens <= LONGEST
        )
        services.append(DayTraffic(f"{model}-{number}", model, requests))
    return services


def busiest_hour(services: Sequence[DayTraffic], start: float, end: float) -> float:
    """Return when the hour begins in which all are asked most."""
    hours = range(int(start), int(end), 3600)
    return max(hours, key=lambda hour: sum(len(each.between(hour, hour + 3600)) for each in services))


def _is_busy(client: Client, begin: float) -> bool:
    return all(
        sum(start <= window.start < start + DAY for window in client.windows) >= BUSY_PARTS
        for start in (begin, begin + DAY)
    )


def _busiest(client: Client, begin: float) -> float:
    """Return the client's rate in the busiest hour of the day that begins then, over that day's mean."""
    hours = [0.0] * 24
    for window in client.windows:
        if begin <= window.start < begin + DAY:
            hours[int((window.start - begin) // 3600)] += window.rate
    return 24 * max(hours) / sum(hours)


def _at_rate(client: Client, begin: float, rate: float) -> Client:
    """Return the client with as many requests/s on the mean of two days."""
    windows = [each for each in client.windows if begin <= each.start < begin + 2 * DAY]
    factor = rate * 2 * DAY / (WINDOW * sum(each.rate for each in windows))
    return replace(client, windows=[replace(each, rate=factor * each.rate) for each in windows])
