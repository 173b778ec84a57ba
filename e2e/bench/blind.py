"""A prediction of a run whose times were not known: vLLM 0.19 on an RTX 4090, `python -m e2e.bench.blind`.

Given are arrivals and lengths of 300 requests, the engine's settings and operator tables of such a GPU.
Writes blind_rtx4090.json. What had to be decided, and how:

- The method is that of `e2e.bench.validation.measured`, unchanged: nothing added or fitted. In the runs with
  known times it is 1 to 7 % too fast. That was not carried over: it differs from one to the other, and no
  cause was found that would be the same here.
- 2,588 blocks of 16 tokens, of which vLLM keeps one; at most 256 requests; 2,048 tokens a step;
  asynchronous scheduling; no watermark, which vLLM 0.19 did not have. A request is let in only when its
  whole prompt has room (`scheduler_reserve_full_isl`), in 0.19 as in 0.32.
- What is preempted: the request that started last, in both. It goes to the head of the queue, loses all
  its blocks and computes them again, its output so far included. Prefix caching is on, so it finds those
  of its blocks again that nobody has taken since. No prompts are taken to share a prefix.
- vLLM 0.32 lets a preempted request wait until its tokens under way have arrived, a step at most; 0.19
  does not.
- Front end: the measured runs have some milliseconds between arrival and queueing, most of it the rest of
  the step under way, which is simulated. What is left is below a millisecond and is not added.
- First and last token are taken when a step ends, as vLLM's own timestamps are. TTFT and end to end count
  from the arrival, TPOT is (last - first) / (tokens - 1).

How blind this is: an earlier, simpler calculation had been compared with the true run, and its errors (1
to 4 % of the mean end to end time) were known before this prediction was made, though not the times
themselves. `meta.json` tells when the run began and ended. Neither was used.
"""

import json

import numpy as np

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.bench.validation.measured import RTX4090_8B, simulated, times

COMMAND = "python -m e2e.bench.blind"


def main() -> None:
    """Simulate the run and write its figures."""
    describe(__doc__).parse_args()
    run = simulated(RTX4090_8B)
    found = times(run)
    figures: dict[str, float] = {}
    for key in ("ttft", "tpot", "e2e"):
        values = getattr(found, key)
        figures[f"{key}_mean_seconds"] = round(float(np.mean(values)), 5)
        for quantile in (50, 95):
            figures[f"{key}_p{quantile}_seconds"] = round(float(np.percentile(values, quantile)), 5)
    figures |= {
        "preemptions": run.preemptions,
        "duration_seconds": round(run.duration, 2),
        "steps": run.steps,
    }
    results.write("blind_rtx4090", COMMAND, figures, simulated=True)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
