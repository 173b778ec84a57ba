"""A stand-in for GPUs on the real node: devices that are none, for engines that run on the CPU.

A DRA driver, of which the scheduler and the kubelet see what they see of one for GPUs: a claim gets a device,
pods that name the claim run where it is, and the driver is asked before the first of them starts and after
the last has ended. It gives containers nothing. After the kubelet has started anew, offer the devices again.

`python -m e2e.cluster.stand_in_device KUBELET_FOLDER`, inside the cluster's namespaces, is the driver.
"""

import sys
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from . import devices, node_files
from .cluster import Cluster
from .progress import detach
from .remains import pids_of

DRIVER = "stand-in.headrace.dev"
_API = "v1.DRAPlugin"
# What the kubelet's plugin API needs of its messages; fields have the names and numbers that they have there.
_MESSAGES = """
name: "kubelet.proto" package: "kubelet" syntax: "proto3"
message_type { name: "Nothing" }
message_type {
  name: "PluginInfo"
  field { name: "type" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "endpoint" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "supported_versions" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
}
message_type {
  name: "Claim"
  field { name: "uid" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "Claims"
  field { name: "claims" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".kubelet.Claim" }
}
message_type {
  name: "Answered"
  field { name: "uid" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "answer" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".kubelet.Nothing" }
}
message_type {
  name: "Answers"
  field { name: "claims" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".kubelet.Answered" }
}
"""


def offer(cluster: Cluster, count: int) -> None:
    """Have the real node offer so many devices `device-0` …, of class `stand-in.headrace.dev`."""
    folder = cluster.state / "kubelet"
    command = (sys.executable, "-m", "e2e.cluster.stand_in_device", str(folder))
    if not pids_of(command):
        with (cluster.state / "logs" / "stand-in-device.log").open("ab") as log:
            detach([*cluster.enter(), *command], log)
    listed = [{"name": f"device-{index}"} for index in range(count)]
    cluster.apply(devices.device_class(DRIVER), devices.resource_slice(DRIVER, node_files.NODE_NAME, listed))


def main() -> None:
    """Serve the kubelet whose folder is named, until killed."""
    folder = Path(sys.argv[1])
    endpoint = folder / "plugins" / DRIVER / "dra.sock"
    registry = folder / "plugins_registry" / f"{DRIVER}.sock"
    info = {"type": "DRAPlugin", "name": DRIVER, "endpoint": str(endpoint), "supported_versions": [_API]}
    servers = [
        _serve(
            endpoint,
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            NodePrepareResources=("Claims", _answer),
            NodeUnprepareResources=("Claims", _answer),
        ),
        _serve(
            registry,
            "pluginregistration.Registration",
            GetInfo=("Nothing", lambda _request: _message("PluginInfo")(**info)),
            NotifyRegistrationStatus=("Nothing", lambda _request: _message("Nothing")()),
        ),
    ]
    for server in servers:
        server.wait_for_termination()


def _answer(request: Any) -> Any:
    """Say of each claim that there is nothing to do."""
    nothing = _message("Nothing")()
    return _message("Answers")(claims=[{"uid": claim.uid, "answer": nothing} for claim in request.claims])


def _serve(socket: Path, service: str, **methods: tuple[str, Callable[[Any], Any]]) -> grpc.Server:
    """Serve methods, by name, each with the message that it takes, at a Unix socket."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, _context, answer=answer: answer(request),
            request_deserializer=_message(takes).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, (takes, answer) in methods.items()
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def _message(name: str) -> type[Any]:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"kubelet.{name}"))


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()))

if __name__ == "__main__":
    main()
