"""The simulations of one world, in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headrace_operator.simulate.figures import Figures
from headrace_operator.simulate.jobs import Job, World
from headrace_operator.simulate.processes import Processes


@dataclass(frozen=True, slots=True)
class Simulations:
    """`Simulate` for one world, in other processes."""

    processes: Processes
    world: World

    @property
    def at_once(self) -> int:
        """How many run side by side."""
        return self.processes.at_once

    def __call__(self, jobs: Sequence[Job], what: str) -> list[Figures]:
        """Figures of each job, in order; `what` they are for is shown beside a bar."""
        return self.processes.run(partial(_run, self.world), jobs, what)


def _run(world: World, job: Job) -> Figures:
    from headrace_operator.simulate import worker  # noqa: PLC0415 vLLM must not be imported where tables are drawn

    return worker.run_job(world, job)
