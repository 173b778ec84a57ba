"""A workload on an engine with the loads that a study sweeps; its cases are runs of stock vLLM."""

from dataclasses import dataclass

from e2e.bench.runs import workloads
from e2e.bench.runs.engine import ENGINES, Case

TUNING_SEED = -1  # of a recorded workload its end; of one that is drawn, a draw that is not judged


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload on an engine, and the loads at which it is looked at."""

    key: str  # in the figures' names
    name: str  # for people
    workload: str
    engine: str
    loads: tuple[float, ...]  # of the sweep: goodput and latencies
    others: tuple[float, ...]  # loads of a few policies only
    point: float  # where alternatives are compared, and latencies tuned for
    seeds: tuple[int, ...] = (0, 1, 2)
    requests: int = 2000
    tuned_on: int = 1000  # requests of the sample that engine settings are tuned on

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

    def tuning_case(self, load: float) -> Case:
        """Return one run of stock vLLM at this load on the sample that no seed is judged on."""
        return Case(self.workload, self.engine, load, TUNING_SEED, requests=self.tuned_on)

    def refuse_overlap(self) -> None:
        """Raise ValueError if a recorded workload has too few requests for the seeds and the sample."""
        recorded = workloads.count_recorded(self.workload, ENGINES[self.engine].settings.max_model_len)
        needed = (max(self.seeds) + 1) * self.requests + self.tuned_on
        if recorded is not None and needed > recorded:
            raise ValueError(
                f"{self.name}: {needed} requests are needed that no two runs share, of {recorded} recorded"
            )
