"""`make demo`: from nothing to a policy changed under load, each step told and timed.

    cluster up → chart → two services → replay, with a `kubectl patch` in its middle → before and after → URL

Running it again is cheap: what is up stays up, what is applied is applied again. The cluster is left running
for the user's own requests; the last lines say how to end it. Where the demo stops, it says at which step,
and shows what to look at.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping

from rich.console import Console

from e2e.bench import results
from e2e.cluster.places import REPOSITORY, cache
from e2e.demo import deploy, services, table, workload
from e2e.demo.diagnosis import diagnose
from e2e.demo.kube import Kube, Object
from e2e.demo.metrics import Sample, Targets
from e2e.demo.replay import Progress, replay
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import REOPENED, SettingError, Target

WIDTH = 110  # columns of the comparison where there is no terminal to ask


def main() -> int:
    """Run the demo; the exit status is 0 if every step worked and no request failed."""
    began = float(os.environ.get("DEMO_STARTED") or time.time())
    first = not (cache() / "vllm").exists()
    steps = Steps()
    target: Target | None = None
    try:
        target = deploy.cluster(steps)
        failed = _on(target, services.load(target.samples), steps)
    except SettingError as error:
        steps.say(f"✗ {error}")
        return 2
    except (StageError, KeyboardInterrupt) as error:
        steps.say(f"✗ {error!s}")
        if target:
            steps.say(diagnose(target.kube))
        return 1
    _conclude(time.time() - began, first, steps, keep=not target.reopen)
    return 1 if failed else 0


def _on(target: Target, manifests: Mapping[str, Object], steps: Steps) -> bool:
    """Everything that happens on a cluster that is up; whether a request failed."""
    kube, targets = target.kube, services.targets(manifests)
    deploy.headrace(target, steps)
    deploy.sample_services(target, manifests, steps)
    with target.gateway() as url, steps.stage("replay"):
        steps.say("  Azure 2023 conversation trace through the gateway; the policy changes half-way")
        pods = services.pod_lives(kube)
        samples, changes = asyncio.run(_replay(url, kube, targets, steps))
        restarts = services.restarted(pods, services.pod_lives(kube))
    wide = None if sys.stdout.isatty() else WIDTH
    Console(width=wide).print(table.comparison(workload.rows(samples, targets)))
    _report(samples, changes, restarts, steps)
    steps.say("\nEvents of the services:")
    for event in services.events(kube):
        steps.say(f"  {event}")
    _invite(target, url, steps)
    return any(sample.error for sample in samples)


async def _replay(
    url: str, kube: Kube, targets: Mapping[str, Targets], steps: Steps
) -> tuple[list[Sample], dict[str, float]]:
    """Replay the trace, change every policy half-way; what clients saw, and the seconds of each change."""
    progress = Progress()
    start = time.monotonic()
    shown = asyncio.create_task(
        table.follow(progress, targets, lambda: workload.phase(time.monotonic() - start), steps)
    )
    load = asyncio.create_task(replay(url, workload.calls(), progress))
    try:
        await asyncio.sleep(workload.SWITCH_AT)
        took = await asyncio.gather(
            *(asyncio.to_thread(services.schedule, kube, name, {"policy": "LARRY"}) for name in targets)
        )
        samples = await load
    finally:
        load.cancel()
        shown.cancel()
        await asyncio.gather(load, shown, return_exceptions=True)
    return samples, dict(zip(targets, took, strict=True))


def _report(samples: list[Sample], changes: Mapping[str, float], restarts: int, steps: Steps) -> None:
    """What the change took, and what it cost."""
    for name, took in changes.items():
        steps.say(f"kubectl patch llmservice {name}: LARRY on every engine after {took:.2f} s")
    errors = [sample for sample in samples if sample.error]
    steps.say(f"{len(samples)} requests, {len(errors)} failed; {restarts} restarts of pods or containers")
    for sample in errors[:5]:
        steps.say(f"  {sample.service}: {sample.error}")


def _invite(target: Target, url: str, steps: Steps) -> None:
    """How to send a request of one's own."""
    body = '{"model": "chat", "prompt": "Hello", "max_tokens": 16}'
    if target.reopen:
        url = REOPENED
        steps.say(f"\nThe gateway is at {url} while this runs:\n  {target.reopen}")
    else:
        steps.say(f"\nThe gateway is at {url}.")
    steps.say(f"  curl {url}/v1/completions -H 'content-type: application/json' -d '{body}'")
    steps.say(f"  {target.kubectl} describe llmservices -n {NAMESPACE}")
    steps.say("To end it all:")
    for command in target.end:
        steps.say(f"  {command}")


def _conclude(seconds: float, first: bool, steps: Steps, *, keep: bool) -> None:
    """The time of each step; `keep` the figure of a first or a later run, on the local cluster."""
    stages = ", ".join(f"{name} {took:.0f} s" for name, took in steps.seconds.items())
    steps.say(f"\n{seconds:.0f} s in all: {stages}")
    if not keep:
        return
    figure = "first_seconds" if first else "second_seconds"
    path = results.write("demo", "make demo", {figure: round(seconds, 1)}, keep_other_figures=True)
    steps.say(f"{figure} written to {path.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    sys.exit(main())
