"""With which rights the Kubernetes API is asked."""

from kubernetes.aio import config


async def load() -> None:
    """Take the pod's own service account, or outside a pod the user's kubeconfig."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
