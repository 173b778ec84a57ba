"""Prometheus on the running local cluster: `python -m e2e.monitoring [SECONDS]`.

It scrapes what the chart's pod monitors select, for a minute by default, shows its address meanwhile, and
then says which panels of the dashboards have no number and which alerts are on. Send requests while it runs.
"""

import sys
import tempfile
import time
from pathlib import Path

from e2e import helm
from e2e.cluster import binaries
from e2e.cluster.cluster import Cluster
from e2e.cluster.progress import say
from e2e.demo.services import NAMESPACE
from e2e.monitoring import queries
from e2e.monitoring.scrape import of_cluster
from e2e.monitoring.server import Prometheus, unanswered

INTERVAL = "2s"
VALUES = {"__rate_interval": "1m", "namespace": NAMESPACE, "service": "chat", "pod": ".*"}


def on(cluster: Cluster, folder: Path) -> Prometheus:
    """A Prometheus in the cluster's network, with the chart's pod monitors and alerts."""
    manifests = helm.render({"monitoring": {"podMonitors": {"enabled": True}}})
    monitors = [manifest for manifest in manifests if manifest["kind"] == "PodMonitor"]
    configs = [of_cluster(each, helm.NAMESPACE, str(cluster.kubeconfig), INTERVAL) for each in monitors]
    return Prometheus(folder, configs, [queries.RULES], enter=cluster.network())


def asked() -> list[queries.Query]:
    """Every panel's query, for the service `chat` of the demo."""
    boards = queries.dashboards().items()
    return [query for name, board in boards for query in queries.of_dashboard(name, board, VALUES)]


def main(seconds: float) -> int:
    """Scrape for a while and report; the exit status is 1 if a target could not be scraped."""
    binaries.ensure_packages()
    everything = asked()
    with tempfile.TemporaryDirectory() as folder, on(Cluster(), Path(folder)) as server:
        say(f"Prometheus is at {server.url} for {seconds:.0f} s; send requests")
        time.sleep(seconds)
        silent = unanswered(server, everything)
        targets = server.targets()
        alerts = {rule["name"]: rule["state"] for rule in server.rules() if rule["state"] != "inactive"}
    failing = [target for target in targets if target["health"] != "up"]
    say(f"{len(targets)} targets scraped, {len(failing)} of them in vain")
    say(f"{len(everything) - len(silent)} of {len(everything)} queries have a number; none yet:")
    for query in silent:
        say(f"  {query.where}: {query.expression}")
    say(f"alerts: {', '.join(f'{name} {state}' for name, state in alerts.items()) or 'none'}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
