"""Policies to compare with, for simulations only: they know output lengths, or reserve what no one needs.

A simulated request's `max_tokens` is the output it will produce. Each entry of `BASELINES` takes
`step_budget` (tokens, 0 for the engine's own) and gives what `simulate` takes.

| name      | who starts next                     | who is preempted when room is short                 |
|-----------|-------------------------------------|-----------------------------------------------------|
| NoPreempt | order of arrival, output reserved   | nobody: KV for all that runs is there               |
| SPF       | fewest prompt tokens                | the latest started, as in vLLM                      |
| SRPT      | least work left, true lengths       | whoever has most work left, also for a shorter one  |
| TRAIL     | fewest predicted output tokens left | most left, while little of its output is made       |
| Orca      | order of arrival, context reserved  | nobody; eight run at once                           |
| SRTF      | as SRPT, context reserved           | whoever has most work left, for a shorter one       |
| FastServe | highest level of a feedback queue   | the lowest level, for a higher one                  |
| Sarathi   | order of arrival, small step budget | the latest started, as in vLLM                      |
| MLFQ      | as FastServe, KV as it is needed    | the lowest level, for a higher one and as in vLLM   |
| MultiRes  | demand nearest to what is free      | nobody: KV for all that runs is there               |

DistServe is no policy but two engines: `headrace_engine.sim.disaggregated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace_engine.sim.baselines.by_length import no_preempt, shortest_prompt_first, srpt, trail
from headrace_engine.sim.baselines.feedback_queue import mlfq
from headrace_engine.sim.baselines.parts import DECODE_WORK, SortedOrder
from headrace_engine.sim.baselines.reserving import fast_serve, multi_res, orca, srtf
from headrace_engine.sim.baselines.sarathi import sarathi
from headrace_engine.sim.clock import Compose

__all__ = [
    "BASELINES",
    "DECODE_WORK",
    "SortedOrder",
    "fast_serve",
    "mlfq",
    "multi_res",
    "no_preempt",
    "orca",
    "sarathi",
    "shortest_prompt_first",
    "srpt",
    "srtf",
    "trail",
]

BASELINES: Mapping[str, Callable[..., Compose]] = {
    "NoPreempt": no_preempt,
    "SPF": shortest_prompt_first,
    "SRPT": srpt,
    "TRAIL": trail,
    "Orca": orca,
    "SRTF": srtf,
    "FastServe": fast_serve,
    "Sarathi": sarathi,
    "MultiRes": multi_res,
    "MLFQ": mlfq,
}
