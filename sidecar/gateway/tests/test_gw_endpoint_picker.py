"""The endpoint picker of an InferencePool: its health checks, its certificate, the manifest that is shown."""

from pathlib import Path

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from headrace_gateway import certificate
from headrace_gateway.endpoint_picker import READY, Health
from headrace_gateway.settings import Settings, read_settings

MANIFEST = Path(__file__).parents[3] / "docs/inference-pool.yaml"


@pytest.fixture
async def health():
    """Asks after a service by name; `health.missing` is what the picker lacks."""
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(Health(lambda: ask.missing), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def ask(service):
            return (
                await stub.Check(HealthCheckRequest(service=service))
            ).status == HealthCheckResponse.SERVING

        ask.missing = ""
        yield ask
    await server.stop(0)


async def test_it_is_ready_when_nothing_is_missing(health):
    assert [await health(service) for service in READY] == [True] * len(READY)
    health.missing = "a catalog"
    assert [await health(service) for service in READY] == [False] * len(READY)
    assert await health("liveness")


async def test_of_another_service_it_knows_nothing(health):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health("mail")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_certificate_is_made():
    assert isinstance(certificate.self_signed(), grpc.ServerCredentials)


def test_the_manifest_that_is_shown_fits_together():
    objects = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
    [container] = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value", "llm") for each in container["env"]}
    assert read_settings(given) == Settings(service="chat", pod_namespace="llm")
    reference = objects["InferencePool"]["spec"]["endpointPickerRef"]
    service = objects["Service"]
    assert reference["name"] == service["metadata"]["name"]
    assert reference["port"]["number"] == service["spec"]["ports"][0]["port"] == Settings().ads_port
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"grpc": Settings().ads_port, "http": Settings().http_port}
