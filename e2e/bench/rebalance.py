"""Streams that move on demand behind SAL, against streams that stay: `python -m e2e.bench.rebalance`.

Four engines, FCFS. A reasoning service's long answers where KV binds, engines alike and one at half speed;
and elsewhere, where moves shall do no harm.
"""

from dataclasses import replace

from e2e.bench.runs.ablation import Ablation, Setting
from e2e.bench.runs.command_line import parse_options
from e2e.bench.runs.fleet import FleetCase
from e2e.bench.slices import ELSEWHERE, FLEET, LONG_TAILS, UNITS, long_tail

HALF_SPEED = "long tail, KV binds, one of four at half speed"
WHOLE = (
    *LONG_TAILS[:3],  # loads 0.9, 1 and 1.1
    Setting("longtail_kv_half_speed_80", f"{HALF_SPEED}, load 0.8", long_tail(0.8, 1)),
    Setting("longtail_kv_half_speed", f"{HALF_SPEED}, load 1", long_tail(1.0, 1)),
)


def moving(case: FleetCase) -> FleetCase:
    """Return the case with moves on demand."""
    return replace(case, moves=True)


STUDY = Ablation(
    name="rebalance",
    title="Streams that move on demand",
    note=f"{FLEET}, FCFS, load 0.9 unless said otherwise; {UNITS}",
    feature="moves",
    add=moving,
    settings=(*WHOLE, *ELSEWHERE),
    counted=("preemptions", "moved"),
)
run = STUDY.run


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


if __name__ == "__main__":
    main()
