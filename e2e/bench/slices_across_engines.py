"""Slices across engines, against SAL and FCFS: `python -m e2e.bench.slices_across_engines`.

Who steps back after a slice, or is preempted, goes on at whichever engine has room for it (`scheduling.slice`
with `routing.rebalance`). Four or eight engines of a reasoning service; and elsewhere, where that shall do no
harm.
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


def sliced_across(case: FleetCase) -> FleetCase:
    """Return the case with slices across engines."""
    return replace(case, slice_tokens=SLICE, moves=True)


STUDY = Ablation(
    name="slices_across_engines",
    title="Slices across engines",
    note=f"{FLEET}, FCFS, load 0.9 unless said otherwise; {UNITS}",
    feature=f"{SLICE} tokens",
    add=sliced_across,
    settings=(*LONG_TAILS, *MORE, *ELSEWHERE),
    counted=("preemptions", "moved"),
)
run = STUDY.run


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


if __name__ == "__main__":
    main()
