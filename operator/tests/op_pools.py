"""GPUPools for tests of the pure parts."""

from op_kube import gpupool

from headrace_operator.api import Key, parse_pool

TOKEN = "5e" * 32
KEY = Key("llm", "shared", "GPUPool")


def pool_body(name="shared", created="2026-01-01T00:00:00Z", **groups):
    """A raw pool as the API server has it."""
    raw = gpupool(name, **groups)
    raw["metadata"] |= {
        "namespace": "llm",
        "uid": f"llm-{name}",
        "generation": 1,
        "creationTimestamp": created,
        "resourceVersion": "1",
    }
    return raw


def pool(name="shared", created="2026-01-01T00:00:00Z", **groups):
    """A parsed pool."""
    return parse_pool(pool_body(name, created, **groups))
