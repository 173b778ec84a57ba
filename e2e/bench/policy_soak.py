"""Soak: 200,000 requests through every policy, in turn on one engine: `python -m e2e.bench.policy_soak`.

The simulated engine has too little KV for its load. It changes its policy every few thousand requests, with
requests in flight. Lengths are random, one token among them; told lengths are wrong by up to ten times, and
targets are drawn too. What leaks shows as KV blocks that nobody holds in the end, or as memory that grows
after the first round. Then the real engine on CPU serves the same prompts under each policy and with vLLM's
own scheduler: `outputs_changed` counts the answers that differ.
"""

import gc
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.bench.real_engine.outputs import MARK, Report
from e2e.bench.report import results
from e2e.bench.runs.command_line import make_parser, read_options
from e2e.bench.runs.engine import OVERRIDES
from e2e.cluster import model
from headrace_engine.contracts import PolicyDocument, Slo, StepBudget, codec
from headrace_engine.cost import catalog
from headrace_engine.policies import registry
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

COMMAND = "python -m e2e.bench.policy_soak"
REQUESTS = 200_000
TURN = 5_000  # requests until the next policy
SETTINGS = EngineSettings(
    num_blocks=600, max_num_seqs=128, max_num_batched_tokens=2048, max_model_len=2048, async_scheduling=True
)
PER_SECOND = 60.0
SLO = Slo(ttft_ms=1000, tpot_ms=50, e2e_ms=20_000, per_request=OVERRIDES)
MIB = 2**20
ENGINE_SECONDS = 900  # for the real engine, which starts slowly on a busy machine


def main() -> None:
    """Run both parts and write the figures."""
    arguments = make_parser(__doc__)
    arguments.add_argument("--requests", type=int, default=REQUESTS, help="default %(default)s")
    chosen = arguments.parse_args()
    options = read_options(chosen)
    figures = soak(min(chosen.requests, 4 * TURN) if options.quick else chosen.requests)
    print(figures, flush=True)
    figures["outputs_changed"] = outputs_changed()
    print(results.write("policy_soak", COMMAND, figures, folder=options.folder))


def documents() -> list[PolicyDocument]:
    """List every policy as it is, with every value of its choices and switches, with each step budget."""
    found = [PolicyDocument(name, slo=SLO) for name in registry.policy_names()]
    for name in registry.policy_names():
        for key, schema in registry.parameter_schema(name)["properties"].items():
            values = schema.get("enum") or ([True, False] if schema["type"] == "boolean" else [])
            others = [value for value in values if value != schema["default"]]
            found += [PolicyDocument(name, {key: value}, slo=SLO) for value in others]
        found.append(PolicyDocument(name, step_budget=StepBudget("SLO"), slo=SLO))
        found.append(PolicyDocument(name, step_budget=StepBudget("Fixed", 256), slo=SLO))
    return [document.sealed() for document in found]


def extremes() -> list[PolicyDocument]:
    """List every policy with each of its numbers at its least and at its most."""
    return [
        PolicyDocument(name, {key: schema[bound]}, slo=SLO).sealed()
        for name in registry.policy_names()
        for key, schema in registry.parameter_schema(name)["properties"].items()
        for bound in ("minimum", "maximum")
        if schema.get(bound) not in (None, schema["default"])
    ]


def arrivals(count: int) -> Iterator[Arrival]:
    """Make arrivals one by one; nothing keeps them."""
    chance = random.Random("soak")
    at = 0.0
    for _ in range(count):
        at += chance.expovariate(PER_SECOND)
        output = chance.choice((1, 2, 8, 20, 40, 80))
        targets = Targets(
            ttft=chance.choice((None, 0.1, 2.0)),
            tpot=chance.choice((None, 0.02)),
            e2e=chance.choice((None, 5.0)),
        )
        hint = chance.choice((None, output, max(1, output // 10), 10 * output))
        yield Arrival(at, chance.choice((1, 16, 100, 300, 900)), output, targets=targets, hint=hint)


def soak(count: int) -> dict[str, float]:
    """Serve `count` requests; raises RuntimeError if one is lost, gets stuck or ends early."""
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415  vLLM takes ten seconds to import

    turns = itertools.cycle(documents())
    engine = SimulatedEngine(SETTINGS, catalog.find_cost_model("llama-3-8b", "H100"), next(turns))
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    finished = settled = 0
    round_length = len(documents()) * TURN

    def advance() -> None:
        nonlocal finished
        for outcome in engine.advance():
            finished += 1
            if outcome.finished_at is None:
                raise RuntimeError(f"ended early: {outcome}")

    for number, arrival in enumerate(arrivals(count)):
        if number % TURN == 0 and number:
            assert engine.link is not None
            engine.link.stage(next(turns))
        if number == min(round_length, count // 2):
            settled = resident()
        while engine.next_event_at < arrival.at:
            advance()
        engine.add(arrival, arrival.at)
        engine.outcomes[number] = None  # type: ignore[call-overload]  # a simulator's memory is its own
    while engine.next_event_at < float("inf"):
        advance()
    if finished != count:
        raise RuntimeError(f"{count - finished} of {count} requests never finished")
    guard = engine.scheduler._guard  # noqa: SLF001  (its counters)
    return {
        "requests": count,
        "documents": len(documents()),
        "leaked_blocks": free - pool.get_num_free_blocks(),
        "rss_growth_mib": round((resident() - settled) / MIB, 1),
        "preemptions": engine.preemptions,
        "fallback_steps": guard.fallback_steps,
        "steps": engine.steps,
    }


def resident() -> int:
    """Return the bytes of memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def outputs_changed() -> int:
    """Count the answers of the real engine that differ from those of vLLM's own scheduler.

    Over all documents, each alone and in a walk through them under load. Raises RuntimeError if a step fell
    back on vLLM's order, or if the walk met no requests.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        root = Path(folder)
        model.write(root / "model")
        for name in ("control", "stats"):
            (root / "headrace" / name).mkdir(parents=True)
        stock = _report(root, {})["stock"]
        texts = [codec.dumps(document) for document in (*documents(), *extremes())]
        ours = _report(root, {"HEADRACE_DIR": str(root / "headrace")}, *texts)
    fallbacks = ours["rounds"][-1]["fallback_steps"]
    if fallbacks or not ours["walk"]:
        raise RuntimeError(f"{fallbacks} fallback steps, {len(ours['walk'])} rounds of the walk")
    served = [*(each["tokens"] for each in ours["rounds"]), *ours["walk"]]
    return sum(answer != right for each in served for answer, right in zip(each, stock, strict=True))


def _report(root: Path, extra: dict[str, str], *texts: str) -> Report:
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_DIR"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-m", "e2e.bench.real_engine.outputs", root / "model", *texts],
        env=environment | extra,
        capture_output=True,
        text=True,
        timeout=ENGINE_SECONDS,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        raise RuntimeError(f"the engine said nothing: {done.stderr[-2000:]}")
    found: Report = json.loads(lines[0].removeprefix(MARK))
    return found


if __name__ == "__main__":
    main()
