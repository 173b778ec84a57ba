"""Slices inside engines behind SAL, against the same without: `python -m e2e.bench.slices`.

Four engines, FCFS, the default patience. Where a reasoning service's lengths have long tails and KV binds,
at four loads and with one engine at half speed; and elsewhere, where slices shall do no harm.
"""

from dataclasses import replace

from e2e.bench.runs.ablation import SEEDS, Ablation, Setting
from e2e.bench.runs.command_line import parse_options
from e2e.bench.runs.fleet import FleetCase

SLICE = 512  # tokens
ENGINES = 4
REQUESTS = 800  # for each engine, with long tails: queues build up over many answers' time
SMALL = "llama-3-8b-h100-8gib"
FLEET = f"{ENGINES} engines (Llama-3-8B on H100; where KV binds 8 GiB of it each) behind SAL"
UNITS = (
    f"means over {SEEDS} seeds, in seconds. Load 1 is what stock engines sustain when all requests wait from "
    "the start. Gap: a request's longest pause between two tokens. Wait: the longest until a request first "
    "started."
)


def long_tail(load: float, slow: int = 0) -> FleetCase:
    """Return a case of a reasoning service where KV binds. `slow`: how many engines run at half speed."""
    return FleetCase("servegen-deepseek-r1", "sal", load, ENGINES, requests=REQUESTS, engine=SMALL, slow=slow)


def _elsewhere(key: str, name: str, workload: str, engine: str) -> Setting:
    return Setting(key, name, FleetCase(workload, "sal", 0.9, ENGINES, engine=engine), elsewhere=True)


LONG_TAILS = (
    Setting("longtail_kv_90", "long tail, KV binds, load 0.9", long_tail(0.9)),
    Setting("longtail_kv", "long tail, KV binds, load 1", long_tail(1.0)),
    Setting("longtail_kv_110", "long tail, KV binds, load 1.1", long_tail(1.1)),
    Setting("longtail_kv_130", "long tail, KV binds, load 1.3", long_tail(1.3)),
    Setting("longtail_kv_half_speed", "the same at load 1, one of four at half speed", long_tail(1.0, 1)),
)
ELSEWHERE = (
    _elsewhere("longtail_ample", "long tail, KV ample", "servegen-deepseek-r1", "llama-3-8b-h100"),
    _elsewhere("conversation", "conversation, KV ample", "conversation", "llama-3-8b-h100"),
    _elsewhere("conversation_kv", "conversation, KV binds", "conversation", SMALL),
    _elsewhere("mooncake", "Mooncake", "mooncake", "llama-3-8b-h100-long"),
)


def sliced(case: FleetCase) -> FleetCase:
    """Return the case with slices."""
    return replace(case, slice_tokens=SLICE)


STUDY = Ablation(
    name="slices",
    title="Slices",
    note=f"{FLEET}, FCFS, patience 30 s, load 0.9 unless said otherwise; {UNITS}",
    feature=f"{SLICE} tokens",
    add=sliced,
    settings=(*LONG_TAILS, *ELSEWHERE),
    counted=("preemptions",),
)
run = STUDY.run


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


if __name__ == "__main__":
    main()
