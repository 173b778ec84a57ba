"""`make demo-pool`: two services whose load changes, and a GPUPool of mode Auto that moves them.

    quiet, a device each → quiet, one device → busy, one device → busy, a device each
                       the pool           the load            the pool's next plan, ten minutes later

Both have a real engine on the CPU; their devices are stand-ins. Plans are made as if the devices were H100s
and the model a large one, since nobody knows how long its steps would take here. No answer may be lost.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from e2e.cluster import stand_in_device
from e2e.cluster.cluster import Cluster
from e2e.demo import deploy, services, table
from e2e.demo.kube import Kube, Object, condition, replicas
from e2e.demo.metrics import Sample, Targets, summarise
from e2e.demo.pools import auto_pool, on_a_device
from e2e.demo.replay import Call, Progress, replay
from e2e.demo.services import NAMESPACE, NotReadyError
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import Target

SERVICES = ("essays", "reports")
DEVICES = 3  # one more than engines: who moves has a new one ready before the old one ends
COST_MODEL = "qwen3-14b"
TARGET_SECONDS = 5  # from sending to the last token
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 300
QUIET, BUSY = 0.02, 0.3  # requests/s of each service
TICK = 0.25  # seconds in which the rate stays
SHOWN_SECONDS = 60.0  # of each phase, at least
MOVE_SECONDS = 600.0  # for two services, one after another
PLAN_SECONDS = 900.0  # from one plan to the next
POOL = "demo"


@dataclass
class Clients:
    """Clients of all services, at random times; `rate` and `phase` may change while they run."""

    url: str  # of the gateway
    phase: str
    rate: float = QUIET
    progress: Progress = field(default_factory=Progress)
    sent: list[tuple[str, Sample]] = field(default_factory=list)  # with the phase in which it was sent

    @property
    def failed(self) -> list[Sample]:
        """Requests whose answer did not come whole."""
        return [sample for _, sample in self.sent if sample.error]

    async def run(self) -> None:
        """Send requests until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for service in SERVICES:
                tasks.create_task(self._send(service, tasks))

    async def _send(self, service: str, tasks: asyncio.TaskGroup) -> None:
        chance, number = random.Random(service), 0
        due = chance.expovariate(1.0)
        while True:
            if due <= 0.0:
                number += 1
                due += chance.expovariate(1.0)
                tasks.create_task(self._ask(Call(0.0, service, PROMPT_TOKENS, OUTPUT_TOKENS, f"{number}")))
            await asyncio.sleep(TICK)
            due -= TICK * self.rate

    async def _ask(self, call: Call) -> None:
        phase = self.phase
        [sample] = await replay(self.url, [call], self.progress)
        self.sent.append((phase, sample))


def main() -> int:
    """Run the demo; the exit status is 0 if services moved as they should and no request failed."""
    steps = Steps()
    if (chosen := os.environ.get("CLUSTER", "local")) != "local":
        steps.say(f"✗ CLUSTER={chosen}: devices that are stand-ins are on the local cluster alone")
        return 2
    try:
        target = deploy.cluster(steps)
        deploy.headrace(target, steps)
        with two_services(target, steps), target.gateway() as url:
            clients = asyncio.run(shift_load(target.kube, url, steps))
    except (StageError, KeyboardInterrupt) as error:
        steps.say(f"✗ {error!s}")
        return 1
    Console(width=None if sys.stdout.isatty() else table.WIDTH).print(_comparison(clients.sent))
    steps.say(f"{len(clients.sent)} requests, {len(clients.failed)} failed")
    for sample in clients.failed[:5]:
        steps.say(f"  {sample.service}: {sample.error}")
    return 1 if clients.failed else 0


@contextmanager
def two_services(target: Target, steps: Steps) -> Iterator[None]:
    """Have the two services ready, on a device each. Other services of the demo rest meanwhile.

    The cluster's pods share 8 GiB, and engines need most as they start. Raises StageError.
    """
    kube = target.kube
    made = _services(services.load(target.samples, target.engine_image)["code"])
    with steps.stage("two services"):
        stand_in_device.offer(Cluster(), DEVICES)
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        _clean_up(kube)  # what a demo left that was killed
        target.prepare(NAMESPACE)
        resting = {
            each["metadata"]["name"]: replicas(each)
            for each in kube.items(NAMESPACE, "llmservices")
            if each["metadata"]["name"] not in made
        }
        for name in resting:
            kube.patch(NAMESPACE, "llmservice", name, {"spec": {"replicas": 0}})
        for manifest in made.values():
            kube.apply(manifest)
    try:
        with steps.stage("engines start"):
            services.wait_ready(kube, made, deploy.READY_SECONDS, steps.say)
        yield
    finally:
        _clean_up(kube)
        for name, count in resting.items():
            kube.patch(NAMESPACE, "llmservice", name, {"spec": {"replicas": count}})


def _clean_up(kube: Kube) -> None:
    kube("delete", "gpupool", POOL, "-n", NAMESPACE, "--ignore-not-found")
    for name in SERVICES:
        kube("delete", "llmservice", name, "-n", NAMESPACE, "--ignore-not-found")


async def shift_load(kube: Kube, url: str, steps: Steps) -> Clients:
    """Send the two services few requests and then many, with a pool that moves them; raises StageError."""
    clients = Clients(url, "quiet, a device each")
    targets = dict.fromkeys(SERVICES, Targets(e2e=TARGET_SECONDS))
    load = asyncio.create_task(clients.run())
    shown = asyncio.create_task(table.follow(clients.progress, targets, lambda: clients.phase, steps))
    try:
        with steps.stage("load shift"):
            await asyncio.sleep(SHOWN_SECONDS)
            pool = auto_pool(POOL, {"type": "H100", "count": DEVICES}, dict.fromkeys(SERVICES, COST_MODEL))
            await asyncio.to_thread(kube.apply, pool)
            await _move(kube, clients, steps, together=True)
            clients.phase = "quiet, one device"
            await asyncio.sleep(SHOWN_SECONDS)
            clients.phase, clients.rate = "busy, one device", BUSY
            await _move(kube, clients, steps, together=False)
            clients.phase = "busy, a device each"
            await asyncio.sleep(SHOWN_SECONDS)
    finally:
        for task in (load, shown):
            task.cancel()
        await asyncio.gather(load, shown, return_exceptions=True)
    return clients


async def _move(kube: Kube, clients: Clients, steps: Steps, *, together: bool) -> None:
    """Wait until the pool has moved the services to one device, or to one each; raises NotReadyError."""
    deadline, told = time.monotonic() + PLAN_SECONDS, ""
    while True:
        pool = await asyncio.to_thread(kube.get, NAMESPACE, "gpupool", POOL)
        story = condition(pool, "AsPlanned")
        reason, message = story.get("reason", ""), story.get("message", "")
        if message != told:
            steps.say(f"  {reason}: {message}")
            told = message
        if reason == "Moving" and not clients.phase.startswith("moving"):
            clients.phase = "moving to one device" if together else "moving to a device each"
            steps.say(f"  plan: {pool['status']['plan']['message']}")
            deadline = time.monotonic() + MOVE_SECONDS
        if reason == "NothingToMove" and _are_together(pool) == together:
            return
        if time.monotonic() > deadline:
            raise NotReadyError(f"not moved: {reason}: {message}")
        await asyncio.sleep(1)


def _are_together(pool: Object) -> bool:
    """Tell whether both services share a group, by what the pool carries out."""
    placed = pool["status"].get("placement", {}).get("services", ())
    groups = {each.get("group") for each in placed}
    return len(groups) == 1 and None not in groups


def _comparison(sent: Sequence[tuple[str, Sample]]) -> Table:
    """Make a table of what each phase was like, in the order of phases."""
    shown = Table(title="Two services, as their load and their devices change")
    for heading in ("while", "service", "sent", "failed"):
        shown.add_column(heading, justify="left" if heading in {"while", "service"} else "right")
    for heading in ("TTFT p50", "p95", "TPOT p50", "E2E p50", "p95", f"within {TARGET_SECONDS} s"):
        shown.add_column(heading, justify="right")
    for phase in dict.fromkeys(phase for phase, _ in sent):
        for service in SERVICES:
            chosen = [sample for during, sample in sent if (during, sample.service) == (phase, service)]
            now = summarise(chosen, Targets(e2e=TARGET_SECONDS))
            shown.add_row(
                *(phase, service, str(now.requests), str(now.errors)),
                *(table.seconds(value) for value in (now.ttft.p50, now.ttft.p95, now.tpot.p50)),
                *(table.seconds(value) for value in (now.e2e.p50, now.e2e.p95)),
                table.percent(now.attainment),
            )
    return shown


def _services(sample: Object) -> Mapping[str, Object]:
    made = {name: on_a_device(sample, name) for name in SERVICES}
    for manifest in made.values():
        manifest["spec"] |= {"slo": {"e2e": f"{TARGET_SECONDS}s"}, "disruption": {"drainTimeout": "30s"}}
    return made


if __name__ == "__main__":
    sys.exit(main())
