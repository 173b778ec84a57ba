"""The picker: `python3 -m headrace_gateway`."""

from functools import partial

from kubernetes.aio import client

from headrace_gateway.kube import configuration, lease
from headrace_gateway.kube.catalog_source import CATALOG_STALE_SECONDS, KubernetesSource
from headrace_gateway.launch import launch
from headrace_gateway.pick.peers import by_name
from headrace_gateway.reports.status_reporter import Reporter, make_writer
from headrace_gateway.server import lead_alone, serve
from headrace_gateway.settings import Settings


async def main(chosen: Settings) -> None:
    """Serve what the cluster says."""
    await configuration.load()
    async with client.ApiClient() as api:
        source = KubernetesSource(api, chosen.watch_namespaces)
        reporter = Reporter(source.read_routes, make_writer(api))
        elect = partial(lease.run_election, api, chosen.pod_namespace, chosen.lease, chosen.pod_name)
        await serve(
            chosen,
            source.run,
            elect if chosen.lease else lead_alone,
            CATALOG_STALE_SECONDS,
            reporter,
            by_name(chosen.peers, chosen.pod_ip) if chosen.peers else None,
        )


if __name__ == "__main__":
    launch(main)
