"""Services that ask for their devices by claims, for tests of groups that share them."""

from op_world import body

from headrace_operator.api import parse_service

CLASS = "gpu.example.com"


def engine(percent=40, kv_bytes=True, **more):
    """The block `engine` of a member that says what it takes."""
    args = ["--kv-cache-memory-bytes=1000000000"] if kv_bytes else []
    share = {} if percent is None else {"gpuMemoryUtilizationPercent": percent}
    return {"image": "example/vllm:1", "args": args, **share, **more}


def spec(*engine_arguments, device_class=CLASS, **engine_fields):
    """The fields of a service that asks for devices of a class."""
    return {
        "accelerator": {"type": "GPU", "dra": {"deviceClassName": device_class}},
        "engine": engine(*engine_arguments, **engine_fields),
    }


def raw_member(name, *engine_arguments, replicas=1, **fields):
    """A raw service that does."""
    return body(name, replicas=replicas, **spec(*engine_arguments, **fields))


def member(name, *engine_arguments, **fields):
    """The same, parsed."""
    return parse_service(raw_member(name, *engine_arguments, **fields))
