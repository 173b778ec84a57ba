"""`make demo`: from nothing to policies changed under load, each step told and timed.

    cluster up → chart → two services → capacity → for each policy: prediction, `kubectl patch`, requests
    → table → URL

Running it again is cheap: what is up stays up, what is applied is applied again. The cluster is left running
for the user's own requests; the last lines say how to end it. Where the demo stops, it says at which step,
and shows what to look at. Nothing of the repository is changed, but with `--keep` (`make bench-demo`): then
the times go to `e2e/bench/results`, and the pages that show them are renewed.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from e2e.bench.report import results
from e2e.cluster.places import REPOSITORY, cache
from e2e.demo import deploy, services, table, workload
from e2e.demo.diagnosis import diagnose
from e2e.demo.kube import Object
from e2e.demo.metrics import Sample
from e2e.demo.predictor import Predictor
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import StageError, Steps
from e2e.demo.target import REOPENED, SettingError, Target
from e2e.demo.walk import Changes, Walker, make_rows, take_walk


def main() -> int:
    """Run the demo; the exit status is 0 if every step worked and no request failed."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo")
    parser.add_argument("--keep", action="store_true", help="write the times to e2e/bench/results/demo.json")
    keep = parser.parse_args().keep
    began = float(os.environ.get("DEMO_STARTED") or time.time())
    first = not (cache() / "vllm").exists()
    steps = Steps()
    target: Target | None = None
    try:
        with Predictor() as predictor:
            target = deploy.cluster(steps)
            manifests = services.load(target.samples, target.engine_image)
            figures = _on(target, manifests, predictor, steps)
    except SettingError as error:
        steps.say(f"✗ {error}")
        return 2
    except (StageError, KeyboardInterrupt) as error:
        steps.say(f"✗ {error!s}")
        if target:
            steps.say(diagnose(target.kube))
        return 1
    _conclude(time.time() - began, first, steps, figures, keep=keep and not target.reopen)
    return 1 if figures["failed"] else 0


def _on(
    target: Target, manifests: Mapping[str, Object], predictor: Predictor, steps: Steps
) -> dict[str, float]:
    """Do everything that happens on a cluster that is up; returns its figures."""
    kube, targets = target.kube, services.targets(manifests)
    deploy.headrace(target, steps)
    deploy.sample_services(target, manifests, steps)
    with target.gateway() as url, steps.stage("replay"):
        order = " → ".join(workload.POLICIES)
        steps.say(f"  lengths of the Azure 2023 traces through the gateway, the same requests under {order}")
        pods = services.pod_lives(kube)
        walk = asyncio.run(take_walk(Walker(url, kube, targets, predictor, steps)))
        restarts = services.restarted(pods, services.pod_lives(kube))
    wide = None if sys.stdout.isatty() else table.WIDTH
    rows = make_rows(walk.parts)
    Console(width=wide).print(table.comparison(rows))
    for name in targets:
        told = [row for row in rows if row.service == name]
        steps.say(table.verdict(workload.TRAFFIC[name].name, told))
    _report(walk.samples, restarts, steps)
    steps.say("\nEvents of the services:")
    for event in services.events(kube):
        steps.say(f"  {event}")
    _invite(target, url, steps)
    return _figures(walk.samples, walk.changes, restarts)


def _figures(samples: Sequence[Sample], changes: Changes, restarts: int) -> dict[str, float]:
    """Return what the demo's file holds beside its own time: the slowest service's seconds of each change."""
    found: dict[str, float] = {
        "requests": len(samples),
        "failed": sum(bool(sample.error) for sample in samples),
        "restarts": restarts,
    }
    for policy, took in changes.items():
        key = policy.lower()
        found[f"{key}_applied_seconds"] = round(max(change.applied for change in took.values()), 3)
        found[f"{key}_with_kubectl_seconds"] = round(max(change.total for change in took.values()), 3)
    return found


def _report(samples: Sequence[Sample], restarts: int, steps: Steps) -> None:
    """Report what the changes cost."""
    errors = [sample for sample in samples if sample.error]
    steps.say(f"{len(samples)} requests, {len(errors)} failed; {restarts} restarts of pods or containers")
    for sample in errors[:5]:
        steps.say(f"  {sample.service}: {sample.error}")


def _invite(target: Target, url: str, steps: Steps) -> None:
    """Tell how to send a request of one's own."""
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


def _conclude(seconds: float, first: bool, steps: Steps, figures: Mapping[str, float], *, keep: bool) -> None:
    """Tell the time of each step; `keep` the figures, which are of the local cluster."""
    stages = ", ".join(f"{name} {took:.0f} s" for name, took in steps.seconds.items())
    steps.say(f"\n{seconds:.0f} s in all: {stages}")
    if not keep:
        return
    figure = "first_seconds" if first else "second_seconds"
    measured = {figure: round(seconds, 1), **figures}
    path = results.write("demo", "make bench-demo", measured, keep_other_figures=True)
    steps.say(f"{', '.join(measured)} written to {path.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    sys.exit(main())
