"""LLMRoutes and EndpointSlices become a catalog; half a view is not published."""

import asyncio
import contextlib

import pytest
from gw_objects import endpoint_slice, llmroute

from headrace_gateway.catalog import ServiceKey
from headrace_gateway.kube import catalog_source
from headrace_gateway.kube.catalog_source import MOST_ENGINES, KubernetesSource, join_engines
from headrace_gateway.kube.llmroutes import RouteReader

KEY = ServiceKey("llm", "chat")
READY, UNREADY = {"ready": True}, {"ready": False}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


def test_configuration_and_ready_endpoints_are_joined():
    services = RouteReader().read([llmroute()])
    catalog = join_engines(
        services,
        [
            endpoint_slice(("10.0.0.3", READY), ("10.0.0.2", {}), ("10.0.0.1", UNREADY)),
            endpoint_slice(("fd00::2", READY), family="IPv6"),
            endpoint_slice(("10.0.0.9", READY), service="other"),
            endpoint_slice(("10.0.0.8", READY), namespace="elsewhere"),
        ],
    )
    assert catalog.services.keys() == {KEY}
    assert catalog.services[KEY].addresses == ("10.0.0.2", "10.0.0.3")
    assert catalog.services[KEY].pods == ("pod-10.0.0.1", "pod-10.0.0.2", "pod-10.0.0.3")


def test_another_service_with_the_labels_of_one_adds_no_engine_to_it():
    """A Service's labels are copied to its slices, and an editor of the namespace may choose them."""
    foreign = endpoint_slice(("10.0.0.66", READY), of="mine")
    [service] = join_engines(RouteReader().read([llmroute()]), [foreign]).services.values()
    assert (service.addresses, service.unready) == ((), ())


def test_an_address_that_passes_to_another_pod_is_a_change():
    dead, new, unknown = (endpoint_slice(("10.0.0.1", READY)) for _ in range(3))
    new["endpoints"][0]["targetRef"]["uid"] = "new"
    del unknown["endpoints"][0]["targetRef"]
    services = RouteReader().read([llmroute()])
    found = [join_engines(services, each).services[KEY] for each in ([dead], [dead, new], [new], [unknown])]
    assert {each.addresses for each in found} == {("10.0.0.1",)}
    assert [each.pods for each in found] == [("pod-10.0.0.1",), ("new", "pod-10.0.0.1"), ("new",), ()]


@pytest.mark.parametrize(
    ("service", "pod", "revision"),
    [
        ("chat", "chat-6d4f9c7b8-abcde", "chat-6d4f9c7b8-"),
        ("chat", "", ""),
        ("chat", "mine", ""),
        ("c" * 50, "c" * 50 + "-6d4f9c7" + "abcde", "c" * 50 + "-6d4f9c7"),
        ("c" * 56, "c" * 56 + "-6" + "abcde", ""),  # cut by Kubernetes in its template's hash
        ("c" * 60, "c" * 58 + "abcde", ""),
    ],
)
def test_pods_of_one_template_are_known_by_their_names(service, pod, revision):
    each = endpoint_slice(("10.0.0.1", READY), service=service)
    each["endpoints"][0]["targetRef"]["name"] = pod
    [found] = join_engines(RouteReader().read([llmroute(name=service)]), [each]).services.values()
    assert found.revisions == ({"10.0.0.1": revision} if revision else {})


@pytest.mark.parametrize(
    ("other", "spec", "left"),
    [
        (READY, {"drain": "Move"}, ["10.0.0.1:8000"]),
        (READY, {"drain": "Wait"}, []),
        (READY, {}, []),
        (READY, {"drain": "Move", "resume": False}, []),
        (UNREADY, {"drain": "Move"}, []),  # nobody could go on
        (TERMINATING, {"drain": "Move"}, []),
    ],
)
def test_streams_leave_a_terminating_engine_if_one_like_it_is_ready(other, spec, left):
    route = llmroute(**{"resume": True, **spec})
    each = endpoint_slice(("10.0.0.1", TERMINATING), ("10.0.0.2", other), ("10.0.0.3", UNREADY))
    catalog = join_engines(RouteReader().read([route]), [each])
    assert catalog.engines_to_leave() == left
    assert "10.0.0.1" not in (*catalog.services[KEY].addresses, *catalog.services[KEY].unready)
    each["endpoints"][1]["targetRef"]["name"] = "chat-5555555555-abcde"  # of another template
    assert join_engines(RouteReader().read([route]), [each]).engines_to_leave() == []


def test_an_address_that_has_passed_on_is_not_left():
    each = endpoint_slice(("10.0.0.1", TERMINATING), ("10.0.0.1", READY), ("10.0.0.2", READY))
    route = llmroute(resume=True, drain="Move")
    assert join_engines(RouteReader().read([route]), [each]).engines_to_leave() == []


def test_engines_are_bounded():
    endpoints = [(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", READY) for n in range(MOST_ENGINES + 10)]
    [service] = join_engines(RouteReader().read([llmroute()]), [endpoint_slice(*endpoints)]).services.values()
    assert len(service.addresses) == len(service.pods) == MOST_ENGINES


@contextlib.asynccontextmanager
async def publishing(publish):
    """A source whose stores the test fills."""
    source = KubernetesSource(None, ())
    task = asyncio.create_task(source._publish_changes(publish))
    yield source, source._routes[0], source._slices[0]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_catalog_that_cannot_be_published_does_not_end_the_source(caplog):
    published = asyncio.Queue()

    def publish(catalog):
        published.put_nowait(catalog)
        if published.qsize() == 1:
            raise ValueError("Envoy's configuration can't be built")

    async with publishing(publish) as (_, routes, slices):
        routes.replace([])
        slices.replace([])
        async with asyncio.timeout(30):
            while published.qsize() < 2:
                routes.replace([])
                await asyncio.sleep(0.001)
    assert "the one before stays in force" in caplog.text


async def test_engines_without_routes_are_waited_for_at_the_start_only(monkeypatch):
    """An operator that is being upgraded has yet to write them; to begin without would take them away."""
    monkeypatch.setattr(catalog_source, "GATHER_SECONDS", 0.0)
    catalogs = asyncio.Queue()
    async with publishing(catalogs.put_nowait) as (_, routes, slices), asyncio.timeout(30):
        slices.replace(
            [endpoint_slice(("10.0.0.1", READY)), endpoint_slice(("10.0.0.2", READY), service="b")]
        )
        routes.replace([])
        await asyncio.sleep(0.05)
        assert catalogs.empty()
        routes.replace([llmroute()])
        await asyncio.sleep(0.05)
        assert catalogs.empty()
        routes.replace([llmroute(), llmroute(name="b")])
        assert len((await catalogs.get()).services) == 2
        routes.replace([])  # as the operator says
        assert (await catalogs.get()).services == {}


async def test_engines_that_stay_without_a_route_do_not_hold_up_the_others(monkeypatch):
    monkeypatch.setattr(catalog_source, "FIRST_SECONDS", 0.0)
    catalogs = asyncio.Queue()
    async with publishing(catalogs.put_nowait) as (_, routes, slices), asyncio.timeout(30):
        slices.replace([endpoint_slice(("10.0.0.2", READY), service="b")])
        routes.replace([llmroute()])
        await asyncio.sleep(0.05)
        routes.replace([llmroute()])
        assert (await catalogs.get()).services.keys() == {KEY}
