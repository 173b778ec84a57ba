"""Turns of engines that share a GPU, without a GPU: `python -m e2e.bench.turns`, about 25 minutes.

Two real vLLM engines, whose shared GPU is one core, serve the same requests with turns and without, pair by
pair; then stand-ins for engines hand over turns, and fail. Writes turns.json.
"""

import asyncio
import tempfile
from pathlib import Path

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.bench.turns import failures, figures, hand_over, sharing_engines
from e2e.bench.turns.figures import Pair

COMMAND = "python -m e2e.bench.turns"
PAIRS = {False: 8, True: 4}  # with synchronous scheduling, and with asynchronous
HAND_OVER_SECONDS = 15.0
FAILURES = 50  # of each kind


def main() -> None:
    """Measure, and write the figures."""
    parser = describe(__doc__)
    parser.add_argument("--pairs", type=int, help="pairs of runs, of each way to schedule")
    parser.add_argument("--failures", type=int, default=FAILURES, help="of each kind (default %(default)s)")
    chosen = parser.parse_args()
    found: dict[str, float] = {}
    for asynchronous, pairs in PAIRS.items():
        found |= compare(asynchronous, chosen.pairs or pairs)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        found |= hand_over.measure(Path(folder), HAND_OVER_SECONDS)
        found |= failures.measure(Path(folder), chosen.failures)
    rounded = {name: round(value, 4) for name, value in found.items()}
    print(results.write("turns", COMMAND, rounded))


def compare(asynchronous: bool, pairs: int) -> dict[str, float]:
    """Serve the same requests with turns and without, so many times, the order changing."""
    made: list[Pair] = []
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        with sharing_engines.running(Path(folder), asynchronous) as running:
            asyncio.run(sharing_engines.measure_alone(running))
            print(f"alone: {running.alone}", flush=True)
            for seed in range(pairs):
                requests = sharing_engines.make_requests(seed)
                answers = {}
                for turns in (True, False) if seed % 2 else (False, True):
                    running.take_turns(turns)
                    answers[turns] = asyncio.run(sharing_engines.serve(running, requests))
                made.append(Pair(answers[True], answers[False]))
                print(figures.compared(made[-1:], running.alone), flush=True)
        logged = figures.of_logs(running.logs())
    found = figures.compared(made, running.alone) | logged
    return {figures.of_async(name): value for name, value in found.items()} if asynchronous else found
