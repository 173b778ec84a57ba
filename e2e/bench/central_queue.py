"""Slices across engines, from a queue before them, against SAL and FCFS: `python -m e2e.bench.central_queue`.

Requests of a reasoning service wait before four or eight engines, and run for a slice at a time where others
wait for KV; and elsewhere, where that shall do no harm. Only a simulation has this queue.
"""

from dataclasses import replace

from e2e.bench.runs.ablation import Ablation, Setting
from e2e.bench.runs.command_line import parse_options
from e2e.bench.runs.fleet import FleetCase
from e2e.bench.slices import ELSEWHERE, FLEET, LONG_TAILS, SLICE, UNITS, long_tail

MORE = (
    Setting("longtail_kv_half_speed_120", "the same at load 1.2", long_tail(1.2, 1)),
    Setting("longtail_kv_110_8", "eight engines, load 1.1", replace(long_tail(1.1), engines=8)),
)


def queued(case: FleetCase) -> FleetCase:
    """Return the case with slices across engines."""
    return replace(case, slice_tokens=SLICE, central_queue=True)


STUDY = Ablation(
    name="central_queue",
    title="Slices across engines",
    note=f"{FLEET}, FCFS, load 0.9 unless said otherwise; {UNITS}",
    feature=f"{SLICE} tokens",
    add=queued,
    settings=(*LONG_TAILS, *MORE, *ELSEWHERE),
    counted=("preemptions", "moved"),
)
run = STUDY.run


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


if __name__ == "__main__":
    main()
