"""Traffic, and questions for a plan."""

from op_pools import pool_body
from op_simulate_pool import LLAMA, raw

from headrace_engine.contracts.traffic import SLOTS, WINDOW_SECONDS, TrafficWindow
from headrace_operator.api.placement import PlannedGroup, PlannedMember
from headrace_operator.planning.question import Question, ServiceTraffic

NOON = 1_795_000_000
TIME = "2026-11-18T09:46:40Z"


def window(number=0, slots=None, *, prompt=500, output=100, met=0, e2e=1.0):
    """A window of requests of one length; `slots`: how many of them in each."""
    arrivals = tuple((slots or {0: 1}).get(slot, 0) for slot in range(SLOTS))
    count = sum(arrivals)
    return TrafficWindow(
        start=NOON + number * WINDOW_SECONDS,
        arrivals=arrivals,
        prompt_tokens=count * prompt,
        output_tokens=count * output,
        prompt_squares=float(count * prompt**2),
        output_squares=float(count * output**2),
        met=met,
        e2e_seconds=count * e2e,
    )


def asked(requests=3, windows=2, **lengths):
    """As many requests in each of some windows, one in a slot."""
    slots = {slot: requests // SLOTS + (slot < requests % SLOTS) for slot in range(SLOTS)}
    return tuple(window(number, slots, **lengths) for number in range(windows))


def service(name, source=LLAMA, **fields):
    """A raw LLMService as the API server has it."""
    made = raw(name, source, **fields)
    made["metadata"] |= {"namespace": "llm", "uid": name, "generation": 1}
    made["spec"]["accelerator"] = {"type": "GPU"}
    return made


def planned_pool(*names, gpus=None, groups=(), mode="Recommend", **cost_models):
    """A raw GPUPool that asks for a plan for services of these names."""
    services = [
        {"name": name, **({"costModel": cost_models[name]} if name in cost_models else {})} for name in names
    ]
    placement = {"mode": mode, "gpus": {"type": "H100", **(gpus or {})}, "services": services}
    return pool_body(placement=placement, **{f"g{n}": members for n, members in enumerate(groups)})


def question(*told, silent=(), gpus=None, groups=(), **fields):
    """A question about raw services and their windows."""
    names = [body["metadata"]["name"] for body, _ in told]
    return Question(
        planned_pool(*names, gpus=gpus, groups=groups, **fields),
        tuple(ServiceTraffic(body, windows, body["metadata"]["name"] in silent) for body, windows in told),
        TIME,
    )


def planned_groups(*groups):
    """The groups of a plan: each of GPUs, then members, of which each has its part of the memory."""
    return tuple(
        PlannedGroup(
            gpus=gpus,
            members=tuple(
                PlannedMember(
                    service=name,
                    gpu_memory_utilization_percent=90 // len(members),
                    kv_cache_memory_bytes=10**9 // len(members),
                )
                for name in members
            ),
        )
        for gpus, *members in groups
    )


def placed(*names, **fields):
    """Where mode Auto has put services, as a status has it: into one group, with much memory."""
    known = {
        "group": "auto-1",
        "replicas": 1,
        "tensorParallelSize": 1,
        "gpuMemoryUtilizationPercent": 45,
        "kvCacheMemoryBytes": 10**10,
    }
    return {"time": TIME, "services": [{"name": name, **known, **fields} for name in names]}
