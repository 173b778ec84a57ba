"""The picker: `python3 -m headrace_sidecar.gateway`."""

import logging
import os
import sys
from functools import partial

import uvloop
from kubernetes.aio import client, config

from headrace_sidecar.gateway import lease, settings
from headrace_sidecar.gateway.kubernetes_source import PATIENCE, KubernetesSource
from headrace_sidecar.gateway.reporter import Reporter, writer
from headrace_sidecar.gateway.server import alone, serve


async def main(chosen: settings.Settings) -> None:
    """Serve what the cluster says: the pod's own service account, or outside a pod the user's kubeconfig."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
    async with client.ApiClient() as api:
        source = KubernetesSource(api, chosen.watch_namespaces)
        reporter = Reporter(source.judged, writer(api))
        elect = partial(lease.elect, api, chosen.pod_namespace, chosen.lease, chosen.pod_name)
        await serve(chosen, source.run, elect if chosen.lease else alone, PATIENCE, reporter)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        chosen = settings.from_environment(os.environ)
    except settings.SettingsError as error:
        sys.exit(str(error))
    uvloop.run(main(chosen))
