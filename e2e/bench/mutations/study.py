"""Whether the way to a spec leaves a trace: `python -m e2e.bench.mutations [--sequences 1000]`.

A sequence is the life of one LLMService on a real API server, with the operator as a process: some fields of
its spec change, one after the other, until every field of the schema has changed in some sequence.
Updates replace the spec or apply it server-side, at random; some rollouts never end and some fail, as the
Deployment's status says, which is played. A hundred services live at a time.

At the end the last spec has been carried out. What the service owns then is compared with what the same spec
makes of a service that is made anew (`differences`; Acto's oracle). A fresh operator that looks at everything
writes nothing (`write_at_fixpoint`). On the way no pod template changes with a change of fields which the
schema calls live, or with one that was refused (`needless_restarts`).
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from e2e.bench.mutations.life import Life, Lives, live
from e2e.bench.mutations.specs import Maker
from e2e.bench.operator.api import connect
from e2e.bench.operator.testbed import Operator
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster.control_plane import ControlPlane

_AT_ONCE = 100  # services
# The operator is told of an installation in which every field can be carried out.
_ALLOWING = {
    "HEADRACE_ALLOW_HOST_PATH": "true",
    "HEADRACE_ALLOW_SERVICE_ACCOUNT_NAME": "true",
    "HEADRACE_GATEWAY_API_KEYS": "true",
}
_COMMAND = "python -m e2e.bench.mutations --sequences {}"


@dataclass(slots=True)
class Tally:
    """What was found, over all sequences."""

    sequences: int = 0
    changes: int = 0
    differences: list[str] = field(default_factory=list)
    needless_restarts: list[str] = field(default_factory=list)
    write_at_fixpoint: int = 0
    covered: set[str] = field(default_factory=set)

    def figures(self, wanted: int) -> dict[str, float]:
        """Make figures for the results; `wanted`: fields that there are."""
        return {
            "sequences": self.sequences,
            "changes": self.changes,
            "fields": wanted,
            "fields_changed": len(self.covered),
            "differences": len(self.differences),
            "needless_restarts": len(self.needless_restarts),
            "write_at_fixpoint": self.write_at_fixpoint,
        }


async def measure(sequences: int, say: Callable[[str], None], seed: int = 0) -> Tally:
    """Live them through, a hundred at a time, and compare their ends."""
    tally = Tally()
    leaves = sorted(Maker(random.Random(0)).leaves)
    random.Random(seed).shuffle(leaves)
    focus = [leaves[number % len(leaves)] for number in range(sequences)]
    with ControlPlane() as plane:
        async with connect(plane) as api, aiohttp.ClientSession() as session:
            await api.install()
            lives = Lives(api)
            await lives.make_pvcs()
            async with asyncio.TaskGroup() as tasks:  # none goes on without the other
                playing = tasks.create_task(lives.play())
                for first in range(0, sequences, _AT_ONCE):
                    batch = [
                        Life(f"s{first + number}", focused, random.Random(f"{seed} {first + number}"))
                        for number, focused in enumerate(focus[first : first + _AT_ONCE])
                    ]
                    began = time.monotonic()
                    await _batch(batch, lives, lambda: Operator(plane, session), tally)
                    say(f"{time.monotonic() - began:.0f} s: {tally.figures(len(leaves))}")
                playing.cancel()
    return tally


async def _batch(batch: Sequence[Life], lives: Lives, operator: Callable[[], Operator], tally: Tally) -> None:
    async with operator():
        await asyncio.gather(*(live(life, lives) for life in batch))
        ends = await lives.owned(batch)
    async with operator() as fresh:
        await _quiet(fresh, len(batch))
        tally.write_at_fixpoint += int(await fresh.writes())
        await lives.clear(batch)
        await asyncio.gather(*(lives.make_anew(life) for life in batch))
        anew = await lives.owned(batch)
        await lives.clear(batch)
    for life in batch:
        tally.sequences += 1
        tally.changes += life.changes
        tally.covered |= life.covered
        tally.needless_restarts += life.needless
        if ends[life.name] != anew[life.name]:
            tally.differences.append(f"{life.name}: {life.story}\n  {ends[life.name]}\n  {anew[life.name]}")


async def _quiet(operator: Operator, services: int) -> None:
    """Wait until it has looked at so many, and for a second at no more."""
    before, seen = -1.0, 0.0
    while seen < services or seen != before:
        await asyncio.sleep(1.0)
        before, seen = seen, await operator.total("headrace_operator_reconcile_seconds_count")


def main() -> int:
    """Measure, print, write; the exit status says whether all held."""
    parser = describe(__doc__)
    parser.add_argument("--sequences", type=int, default=1000, help="(default %(default)s)")
    sequences = parser.parse_args().sequences
    os.environ.update(_ALLOWING)
    tally = asyncio.run(measure(sequences, print))
    for wrong in (*tally.differences, *tally.needless_restarts):
        print(f"✗ {wrong}")
    leaves = set(Maker(random.Random(0)).leaves)
    missing = sorted(leaves - tally.covered)
    if missing:
        print(f"✗ never changed, so give them values in mutation_specs: {', '.join(missing)}")
    figures = tally.figures(len(leaves))
    print(results.write("mutations", _COMMAND.format(sequences), figures))
    held = not (tally.differences or tally.needless_restarts or tally.write_at_fixpoint or missing)
    return 0 if held else 1
