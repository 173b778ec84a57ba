"""What an engine's steps take, and what the CPU takes around them: fitted to the engine itself.

The plugin's server serves all workloads to few clients and to many, and tells how long each step took. While
it is never idle, what its steps leave of the time lies between them. The front end and the clients are timed
by the CPU seconds that they use; one client alone sees what a request takes beside its steps.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from e2e.bench.gateway.testbed import cpu_seconds
from e2e.bench.live import step_table
from e2e.bench.live.cases import Device, Workload
from e2e.bench.live.journal import Entry
from e2e.bench.live.measure import PLUGIN, asker
from e2e.bench.live.servers import Engines
from e2e.bench.live.step_ring import steps_of
from e2e.bench.live.step_table import StepTable
from headrace_engine.contracts import PolicyDocument, StepBudget
from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import StepFit, cost_numbers, is_plausible, read_cost
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.host import HostTime

ONE, FEW, MANY = 1, 4, 0  # clients of a phase; MANY is as many as the device has


class FitError(RuntimeError):
    """The calibration's load had too few prefills."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """How long an engine's steps take, and what the CPU takes around them."""

    cost: StepTable
    host: HostTime
    learned: Linear  # what the engine's own fit makes of the same steps

    def slower(self, factor: float) -> "Fitted":
        """Return the fit for a server whose steps take so many times as long.

        Servers alike differ by some percent, and each with time: in where their memory lies, and in what
        neighbours on the same hardware do.
        """
        return replace(self, cost=self.cost.slower(factor))


@dataclass(frozen=True, slots=True)
class Phase:
    """One closed loop: its clients (ONE, FEW or MANY), its steps, and what was used in it."""

    clients: int
    steps: Sequence[StepSample]
    seconds: float  # from the first request to the last answer
    answers: int
    tokens: int  # in the answers
    front_seconds: float  # CPU of API server and clients

    @property
    def between(self) -> float:
        """Seconds in which no step ran."""
        return self.seconds - sum(step.seconds for step in self.steps)


async def fit(engines: Engines) -> Fitted:
    """Let the plugin's server serve all workloads, one of them with each budget; what that tells.

    Raises FitError.
    """
    phases: list[Phase] = []
    for policy, clients, workloads in plan(engines.device):
        await asyncio.to_thread(engines.apply, PLUGIN, policy)
        for workload in workloads:
            phases.append(await _phase(engines, workload, clients, f"{len(phases)}"))
    steps = [step for phase in phases for step in filter(is_plausible, phase.steps)]
    try:
        cost = step_table.fit(steps, engines.device.budgets)
    except ValueError as error:
        raise FitError(str(error)) from None
    return Fitted(cost, host_time(phases), learn(steps))


def learn(steps: Sequence[StepSample]) -> Linear:
    """Return what the engine itself learns from its steps, by which its policy plans. Raises FitError."""
    own = StepFit()
    for step in steps:
        own.add(step)
    learned = own.cost()
    if learned is None:
        raise FitError(f"{len(steps)} steps, too few with prefill")
    return learned


def plan(device: Device) -> list[tuple[PolicyDocument, int, Sequence[Workload]]]:
    """List policies, clients and workloads of the phases; the first workload has the longest prompts."""
    with_budgets = [
        (PolicyDocument("FCFS", step_budget=StepBudget("Fixed", budget)), MANY, device.workloads[:1])
        for budget in device.budgets
    ]
    return [
        (PolicyDocument("FCFS"), MANY, device.workloads),
        (PolicyDocument("FCFS"), ONE, device.workloads),
        *with_budgets,
        # AccelGen asks the engine for its own fit, which it keeps from then on.
        (PolicyDocument("AccelGen"), FEW, device.workloads),
    ]


def host_time(phases: Sequence[Phase]) -> HostTime:
    """Tell what the CPU takes around steps.

    Of many clients' phases, which leave the engine never idle: seconds between steps, and the front end's for
    each token, beside what it uses for each answer. Of one client's: seconds of each answer beside what lies
    between its steps.
    """
    many = [phase for phase in phases if phase.clients == MANY]
    one = [phase for phase in phases if phase.clients == ONE]
    between = sum(each.between for each in many) / sum(len(each.steps) for each in many)
    _, per_output = _shares([(each.answers, each.tokens, each.front_seconds) for each in many])
    around, _ = _shares([(each.answers, len(each.steps), each.between) for each in one])
    return HostTime(per_step=max(0.0, between), intake=max(0.0, around - per_output), per_output=per_output)


def _shares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit each row's third number by a share of the first and one of the second, none negative."""
    table = np.array(rows)
    first, second = np.linalg.lstsq(table[:, :2], table[:, 2])[0]
    return max(0.0, float(first)), max(0.0, float(second))


def entry(fitted: Fitted) -> Entry:
    """Write a fit as numbers."""
    return {
        "cost": step_table.numbers(fitted.cost),
        "host": asdict(fitted.host),
        "learned": cost_numbers(fitted.learned),
    }


def read(written: Entry) -> Fitted:
    """Read what `entry` wrote."""
    return Fitted(
        step_table.read(written["cost"]), HostTime(**written["host"]), read_cost(written["learned"])
    )


async def _phase(engines: Engines, workload: Workload, clients: int, label: str) -> Phase:
    device, server = engines.device, engines.servers[PLUGIN]
    requests = workload.pool(device.clients * 4)
    random.Random(f"calibration {workload.name}").shuffle(requests)
    before = cpu_seconds(server.process.pid) + time.process_time()
    async with steps_of(server) as steps:
        finished = await asker(engines, PLUGIN).closed_loop(
            requests, clients or device.clients, device.calibration, f"calibration {label}"
        )
        front = cpu_seconds(server.process.pid) + time.process_time() - before
    tokens = sum(requests[number % len(requests)].output_tokens for number in range(len(finished)))
    return Phase(clients, steps, finished[-1], len(finished), tokens, front)
