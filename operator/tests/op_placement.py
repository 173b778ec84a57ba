"""Services and nodes for tests of placement, with the catalogue's cost models."""

from headrace_engine.contracts import Slo
from headrace_engine.cost import catalog
from headrace_operator.placement.problem import Nodes, Request, Service

GIB = 2**30
SIZES = {"llama-3-8b": (1, 2), "mistral-nemo-12b": (1, 2), "qwen3-32b": (1, 2, 4), "llama-3-70b": (2, 4)}


def nodes(count=1, gpus=2):
    return Nodes((gpus,) * count, usable_bytes=73 * GIB, reserved_bytes=3 * GIB)


def service(
    name="chat", *, model="llama-3-8b", rate=1.0, requests=40, prompt=500, output=100, since=0.0, **fields
):
    """A service that is asked at even gaps from `since` on."""
    asked = tuple(Request(since + number / rate, prompt, output) for number in range(requests))
    shape = catalog.find_shape(model)
    known = {
        "requests": asked,
        "costs": {size: catalog.find_cost_model(model, "H100", size) for size in SIZES[model]},
        "weight_bytes": shape.weight_bytes,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "longest": 4096,
        "slo": Slo(e2e_scale_percent=500),
        "step_tokens": 8192,
        "most_running": 1024,
    }
    return Service(name, **{**known, **fields})
