"""Engine settings tuned for stock and for a policy with the same effort, on requests that are judged nowhere.

Tried are the tokens of a step, 256 to 16,384 in steps of the square root of 2, and where KV is short the
share of KV blocks that a watermark keeps free. Coarse to fine: every other budget, the neighbours of the
best one, then watermarks with that. Each is tried on one sample, shorter than the runs that are judged and
of a seed of its own; what is best there is fixed before any of those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from e2e.bench.report import markdown
from e2e.bench.runs import search
from e2e.bench.runs.comparison import SHORT_OF_KV, Kind
from e2e.bench.runs.engine import DEFAULT_BUDGET, Case
from e2e.bench.runs.pool import Figures
from e2e.bench.runs.search import Measure, Search
from e2e.bench.runs.setting import Setting

BLOCK = 16  # tokens, to which budgets are rounded; vLLM takes any number from the requests of a step on
BUDGETS = tuple(BLOCK * round(256 * 2 ** (step / 2) / BLOCK) for step in range(13))
LIKELY = 2048  # the budget that is tried first: its neighbours are better more often than those at the ends
WATERMARKS = (0.01, 0.02, 0.05, 0.1)  # beside none
MET = (
    "met_"  # begins an aim that is a goodput: the target's attainment; any other is a latency, less is better
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is tuned of an engine, whichever policy it has."""

    budget: int = DEFAULT_BUDGET  # tokens per step
    watermark: float = 0.0  # share of KV blocks kept free at admission

    def __call__(self, case: Case) -> Case:
        """Return the run on an engine with these settings."""
        return replace(case, budget=self.budget, watermark=self.watermark)

    def __str__(self) -> str:
        """`1,024`, or `1,024 and 5%` with a watermark."""
        return f"{self.budget:,}" + (f" and {self.watermark:.0%}" if self.watermark else "")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose settings are tuned, and for which figure."""

    setting: str  # its key
    who: str
    aim: str


Tunings = Mapping[Wanted, Tuning]


def tune(setting: Setting, kind: Kind, aim: str) -> Search[Tuning]:
    """Search for the settings with which this kind does best on the setting's sample."""
    setting.refuse_overlap()
    found = yield from _best(setting, kind, aim, map(Tuning, likely_first(BUDGETS[::2])))
    place = BUDGETS.index(found.budget)
    beside = [*BUDGETS[max(place - 1, 0) : place], *BUDGETS[place + 1 : place + 2]]
    found = yield from _best(setting, kind, aim, [found, *map(Tuning, beside)])
    if setting.engine in SHORT_OF_KV:
        marked = [replace(found, watermark=watermark) for watermark in WATERMARKS]
        found = yield from _best(setting, kind, aim, [found, *marked])
    return found


def likely_first(budgets: Iterable[int]) -> tuple[int, ...]:
    """Sort step budgets, the likely best first: a search looks at few loads of those that are not."""
    return tuple(sorted(budgets, key=lambda budget: max(budget / LIKELY, LIKELY / budget)))


def run(
    wanted: Mapping[Wanted, tuple[Setting, Kind]], measure: Measure
) -> tuple[dict[Wanted, Tuning], dict[Case, Figures]]:
    """Tune all of these; returns the settings of each, and the runs on samples."""
    return search.run({each: tune(*told, each.aim) for each, told in wanted.items()}, measure)


def tuned(kind: Kind, tuning: Tuning) -> Kind:
    """Return this kind of run on an engine with these settings."""
    return lambda case: tuning(kind(case))


def figures(tunings: Tunings) -> dict[str, float]:
    """Name what was found: `tuned_budget_{setting}_{aim}_{who}`, and the watermark in percent if any."""
    made: dict[str, float] = {}
    for wanted, tuning in tunings.items():
        name = f"{wanted.setting}_{wanted.aim}_{wanted.who}"
        made[f"tuned_budget_{name}"] = tuning.budget
        if tuning.watermark:
            made[f"tuned_watermark_percent_{name}"] = 100 * tuning.watermark
    return made


def told(tunings: Tunings, settings: Sequence[Setting]) -> str:
    """Tabulate the tokens per step and the watermark that each was tuned to."""
    names = {each.key: each.name for each in settings}
    who = list(dict.fromkeys(wanted.who for wanted in tunings))
    rows = []
    for key, aim in dict.fromkeys((wanted.setting, wanted.aim) for wanted in tunings):
        sample = next(each.tuned_on for each in settings if each.key == key)
        found = (tunings.get(Wanted(key, each, aim)) for each in who)
        rows.append(
            (f"{names[key]}: {aim}", sample, *(None if each is None else str(each) for each in found))
        )
    note = (
        "Tokens per step, and a watermark where one was better than none: the best of "
        f"{_listed(BUDGETS)} tokens, "
        f"and where KV is short of watermarks of 0, {_listed(100 * each for each in WATERMARKS)} %, "
        "coarse to "
        "fine, on a sample of requests that no other figure is of. `met_`: by goodput of that target; other "
        "aims: by that latency at the load where alternatives are compared."
    )
    return f"{markdown.table(('workload: aim', 'requests', *who), rows)}\n\n{note}"


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:,g}" for number in numbers)


def _best(setting: Setting, kind: Kind, aim: str, tunings: Iterable[Tuning]) -> Search[Tuning]:
    """Search among these; of equals the first."""
    choices = list(tunings)
    if aim.startswith(MET):
        kinds = [tuned(kind, each) for each in choices]
        _, winner = yield from search.best(setting.loads, setting.tuning_case, kinds, aim.removeprefix(MET))
        return choices[kinds.index(winner)]
    found = yield [each(kind(setting.tuning_case(setting.point))) for each in choices]
    return min(zip(choices, found, strict=True), key=lambda pair: float(pair[1][aim]))[0]
