"""A workload on an engine with the loads that a study sweeps; its cases are runs of stock vLLM."""

from dataclasses import dataclass

from e2e.bench.runs.engine import Case


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload on an engine, and the loads at which it is looked at."""

    key: str  # in the figures' names
    name: str  # for people
    workload: str
    engine: str
    loads: tuple[float, ...]  # of the sweep: goodput and latencies
    others: tuple[float, ...]  # loads of a few policies only
    point: float  # where alpha, patience and baselines are compared
    seeds: tuple[int, ...] = (0, 1, 2)
    requests: int = 2000

    def at(self, load: float) -> str:
        """Write the key with the load in tenths, or in hundredths where it takes three digits: `code_07`."""
        tenths = round(load * 10, 6)
        return f"{self.key}_{tenths:02.0f}" if tenths.is_integer() else f"{self.key}_{load * 100:03.0f}"

    def all_loads(self) -> list[float]:
        """Return every load at which stock and LARRY are run, the lowest first."""
        return sorted({*self.loads, *self.others})

    def case(self, load: float, seed: int) -> Case:
        """Return one run of stock vLLM at this load with this seed."""
        return Case(self.workload, self.engine, load, seed, requests=self.requests)
