"""The dashboards over the demo: a real Prometheus scrapes what the pod monitors find in the cluster."""

import asyncio

import pytest

from e2e import helm
from e2e.cluster.cluster import Cluster
from e2e.demo import services, workload
from e2e.demo.replay import Progress, replay
from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE
from e2e.monitoring import queries
from e2e.monitoring.scrape import discovered, of_pods
from e2e.monitoring.server import Prometheus, unanswered

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

CAPACITY = {"chat": 2.0, "code": 2.0}  # requests a second that the demo's load is made for
SECONDS = 8.0  # of it under each policy


def scrape_configs(kube):
    """For each pod monitor, the pods that it finds."""
    manifests = helm.render({"monitoring": {"podMonitors": {"enabled": True}}})
    for monitor in (m for m in manifests if m["kind"] == "PodMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        pods = [
            pod
            for namespace in (SYSTEM_NAMESPACE, NAMESPACE)
            for pod in kube.items(namespace, "pods", selector)
        ]
        yield of_pods(monitor, discovered(monitor, pods), "2s")


async def load(stage):
    """Each policy in turn, with the demo's first requests under it; those that failed."""
    failed = []
    for turn, policy in enumerate(workload.POLICIES):
        calls = [call for call in workload.calls(CAPACITY, turn) if call.at < SECONDS]
        for name in stage.samples:
            await asyncio.to_thread(services.schedule, stage.kube, name, {"policy": policy})
        failed += [sample for sample in await replay(stage.url, calls, Progress()) if sample.error]
    return failed


async def test_every_panel_has_an_answer_while_the_demo_runs(stage, tmp_path):
    configs = list(scrape_configs(stage.kube))
    assert all(config["static_configs"] for config in configs), configs
    with Prometheus(tmp_path, configs, [queries.RULES], Cluster().network()) as prometheus:
        assert await load(stage) == []
        stage.until(lambda: {t["health"] for t in prometheus.targets()} == {"up"}, 30, "all is scraped")
        asked = queries.asked(NAMESPACE, "chat", "none")
        silent = {query.where for query in unanswered(prometheus, asked)}
    silent -= {where for where in silent if where.startswith("pool, ")}  # there is no pool
    assert silent <= queries.SILENT, silent - queries.SILENT
