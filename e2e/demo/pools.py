"""GPUPools of mode Auto, and services with real engines that one can move, on devices that are stand-ins."""

import copy
from collections.abc import Mapping

from e2e.cluster import stand_in_device
from e2e.demo.kube import Object
from e2e.demo.services import NAMESPACE
from headrace_operator.api import API_VERSION, POOL_KIND

KV_BYTES = 2**28


def auto_pool(name: str, gpus: Object, models: Mapping[str, str]) -> Object:
    """Make a pool that places services, as if they had these GPUs and each the cost model named with it."""
    return {
        "apiVersion": API_VERSION,
        "kind": POOL_KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "placement": {
                "mode": "Auto",
                "gpus": gpus,
                "services": [{"name": service, "costModel": model} for service, model in models.items()],
            }
        },
    }


def on_a_device(sample: Object, name: str) -> Object:
    """Make a service of that name like a sample, which asks for a device and takes half of its memory."""
    made = copy.deepcopy(sample)
    made["metadata"] = {"name": name, "namespace": NAMESPACE}
    spec = made["spec"]
    spec["model"]["servedName"] = name
    spec["accelerator"] = {"type": "GPU", "dra": {"deviceClassName": stand_in_device.DRIVER}}
    spec["engine"]["gpuMemoryUtilizationPercent"] = 50
    # Members have to say it; how much the engine takes says the sample's VLLM_CPU_KVCACHE_SPACE, whatever a
    # plan for other GPUs would give it.
    spec["engine"]["args"].append(f"--kv-cache-memory-bytes={KV_BYTES}")
    return made
