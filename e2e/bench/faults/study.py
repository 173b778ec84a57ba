"""Every part killed at random moments under load, on the local cluster: `python -m e2e.bench.faults`.

Clients send requests to both sample services all the time, half of them streamed. Then, one after another:

- kubelet, API server, operator, picker, Envoy and a sidecar are killed (SIGKILL), each `--rounds` times, in
  an order and after pauses that follow from `--seed`. Just before each, a service's policy is changed, so
  that the kill meets work under way. A kill is over when the part is back and the change is carried out.
- With the operator scaled to zero, `--engines` engines are killed.
- The API server is away for `--outage` seconds; half-way the picker is killed, which then starts without it.

Writes faults.json. Requests that failed are `requests_lost`, unless the Envoy or the engine that carried them
was killed, or their connections were refused since a kubelet had just started (see `figures.cause`).
Recovery is counted from the kill, not from the return. `worst_endpoint_gone_seconds` is the time until
clients of a service whose only engine was killed are told that it has none. `operator_away_share` is 1 if,
while there was no operator, no request was lost and every engine kept its policy. The operator's requests in
the outage are those that it counts itself, watches not among them. The exit status says whether all limits
were kept.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from e2e.bench.faults import cases
from e2e.bench.faults.cases import Step
from e2e.bench.faults.figures import Away, Damage, Figures, Kill, Outage, Record, broken, figures, lost
from e2e.bench.faults.testbed import Inventory, Testbed, damage, until
from e2e.bench.faults.traffic import Load
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster.cluster import Cluster
from e2e.demo import deploy
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import SYSTEM_NAMESPACE

PER_SECOND = 3.0
QUIET_SECONDS = 3.0  # of load alone, before and after
_OPERATOR = ("deployment", "headrace-operator")


@dataclass(slots=True)
class Campaign:
    """Kills parts of the cluster while the load goes on, and keeps what it sees; its methods take minutes."""

    testbed: Testbed
    load: Load
    steps: Steps
    kills: list[Kill] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)
    away: Away | None = None
    outage: Outage | None = None
    _changes: int = 0
    _told: set[Record] = field(default_factory=set)  # lost requests
    _seen: Inventory | None = None

    def kill_parts(self, steps: Sequence[Step]) -> None:
        """Kill the parts whose death no engine may notice."""
        self._take_stock()
        for number, step in enumerate(steps, 1):
            killed = {kill.part: kill.at for kill in self.kills}
            time.sleep(cases.pause(step, killed, time.monotonic()))
            kill = self.testbed.kill(step, self._next())
            self._note(kill, f"{number}/{len(steps)} {step.part}")

    def kill_engines(self, steps: Sequence[Step]) -> None:
        """Kill engines, which come back, while no operator is there."""
        kube = self.testbed.kube
        replicas = kube.get(SYSTEM_NAMESPACE, *_OPERATOR)["spec"]["replicas"]
        before = self.testbed.policies()
        kube("scale", "/".join(_OPERATOR), "-n", SYSTEM_NAMESPACE, "--replicas=0")
        try:
            gone = until(lambda: not self.testbed.pods("operator"))
            for number, step in enumerate(steps, 1):
                time.sleep(step.pause)
                self._note(self.testbed.kill_engine(step), f"{number}/{len(steps)} engine", killed=1)
            until(lambda: self.testbed.policies() == before, 30.0)
            kept = self.testbed.policies() == before
        finally:
            kube("scale", "/".join(_OPERATOR), "-n", SYSTEM_NAMESPACE, f"--replicas={replicas}")
        self.away = Away(gone, time.monotonic(), kept)
        until(self.testbed.settled)

    def cut_off(self, seconds: float) -> None:
        """Cut the API server off for so long; half-way kill the picker."""
        testbed = self.testbed
        operators = testbed.pods("operator")
        counted = testbed.operator_requests(operators)
        strike, back = testbed.aim("picker")
        testbed.change("chat", self._next())
        began = time.monotonic()
        with testbed.cluster.held("kube-apiserver"):
            time.sleep(seconds / 2)
            strike()
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            asked = testbed.operator_requests(operators) - counted
        returned = time.monotonic()
        healed = max(until(back), until(testbed.settled)) - returned
        self.outage = Outage(returned - began, healed, asked)
        self._take_stock()
        self.steps.say(
            f"  API server away for {seconds:.0f} s: {asked:.0f} requests, healed in {healed:.1f} s"
        )
        self._tell_lost()

    def figures(self) -> Figures:
        """Sum up everything seen so far in numbers."""
        return figures(self.load.records, self.kills, self.damage, self.away, self.outage)

    def _next(self) -> int:
        self._changes += 1
        return self._changes

    def _note(self, kill: Kill, told: str, killed: int = 0) -> None:
        self.kills.append(kill)
        self._take_stock(killed)
        gone = "" if kill.noticed is None else f", endpoint gone in {kill.noticed - kill.at:.2f} s"
        back, healed = kill.back - kill.at, kill.healed - kill.at
        self.steps.say(f"  {told}: back in {back:.1f} s, healed in {healed:.1f} s{gone}")
        self._tell_lost()

    def _tell_lost(self) -> None:
        """Tell what was lost since the last time, and how the cluster's parts are."""
        new = [record for record in lost(self.load.records, self.kills) if record not in self._told]
        self._told.update(new)
        for record in new:
            self.steps.say(f"    lost: {record}")
        if new:
            for line in self.testbed.kube(
                "get", "pods,nodes,endpointslices,leases", "-n", SYSTEM_NAMESPACE, "-o", "wide"
            ).splitlines():
                self.steps.say(f"    {line}")

    def _take_stock(self, killed: int = 0) -> None:
        """Compare what there is with what was there before; `killed` engines were to restart."""
        after = self.testbed.inventory()
        if self._seen is not None:
            self.damage += damage(self._seen, after, killed)
        self._seen = after


@contextlib.asynccontextmanager
async def campaign(testbed: Testbed, steps: Steps, seed: int) -> AsyncIterator[Campaign]:
    """Run a campaign whose load goes on inside the block, and has ended after it."""
    load, stop = Load(testbed.url), asyncio.Event()
    clients = asyncio.create_task(load.run(PER_SECOND, seed, stop))
    await asyncio.sleep(QUIET_SECONDS)
    try:
        yield Campaign(testbed, load, steps)
        await asyncio.sleep(QUIET_SECONDS)
    finally:
        stop.set()
        await clients


async def _measure(testbed: Testbed, steps: Steps, options: argparse.Namespace) -> Figures:
    async with campaign(testbed, steps, options.seed) as running:
        with steps.stage("kills"):
            await asyncio.to_thread(running.kill_parts, cases.kills(options.seed, options.rounds))
        if options.engines:
            with steps.stage("engines killed, no operator"):
                kills = cases.engines(options.seed, options.engines)
                await asyncio.to_thread(running.kill_engines, kills)
        if options.outage:
            with steps.stage(f"API server away for {options.outage:g} s"):
                await asyncio.to_thread(running.cut_off, options.outage)
    return running.figures()


def main() -> int:
    """Bring up what is missing, run, write; the exit status says whether all limits were kept."""
    parser = describe(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="kills of each part (default %(default)s)")
    parser.add_argument("--engines", type=int, default=4, help="kills of engines (default %(default)s)")
    parser.add_argument("--outage", type=float, default=300.0, help="seconds (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = Steps()
    try:
        target, manifests = deploy.everything(steps)
        with target.gateway() as url:
            found = asyncio.run(_measure(Testbed(target.kube, Cluster(), url), steps, options))
            for manifest in manifests.values():
                target.kube.apply(manifest)
    except StageError as error:
        steps.say(f"✗ {error}")
        return 1
    for name, value in found.items():
        steps.say(f"  {name}: {value}")
    told = f"--rounds {options.rounds} --engines {options.engines} --outage {options.outage:g}"
    command = f"python -m e2e.bench.faults {told} --seed {options.seed}"
    steps.say(f"written to {results.write('faults', command, found)}")
    for what in broken(found):
        steps.say(f"✗ {what}")
    return int(bool(broken(found)))
