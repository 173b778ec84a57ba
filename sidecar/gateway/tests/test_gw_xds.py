"""Envoy's dynamic configuration for given catalogs: golden for one service, properties for several."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from envoy.config.route.v3 import route_components_pb2
from google.protobuf import json_format

from headrace_engine.contracts import GatewayConfig
from headrace_gateway import names
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.pick import picker
from headrace_gateway.relay import streams
from headrace_gateway.xds import routes
from headrace_gateway.xds.chart_files import chart_files
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.snapshot import ENDPOINTS, ROUTES, TYPES, build_snapshot

GOLDEN = Path(__file__).parent / "golden" / "gateway_xds.json"


def service(name, *addresses, models=(), since=""):
    return Service(GatewayConfig("llm", name, models, name), addresses, since)


def as_json(catalog):
    return {
        kind.rpartition(".")[2]: [
            json.loads(json_format.MessageToJson(unpacked(item))) for item in resources.items
        ]
        for kind, resources in build_snapshot(catalog, GenerationCache()).items()
    }


def unpacked(item):
    return json_format.Parse(json_format.MessageToJson(item), type(item)())


def test_golden():
    """One service, written out whole; after a wanted change delete the file and run again to renew it."""
    given = (
        json.dumps(
            as_json(Catalog.build([service("chat", "10.0.0.2", models=("chat",))])),
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(given)
        pytest.fail(f"{GOLDEN} was missing and has been written: look at it and run again")
    assert given == GOLDEN.read_text()


def test_versions_follow_the_content_of_each_type():
    before = build_snapshot(Catalog.build([service("chat", "10.0.0.2")]), GenerationCache())
    same = build_snapshot(Catalog.build([service("chat", "10.0.0.2")]), GenerationCache())
    moved = build_snapshot(Catalog.build([service("chat", "10.0.0.3")]), GenerationCache())
    renamed = build_snapshot(Catalog.build([service("chat", "10.0.0.2", models=("c",))]), GenerationCache())

    def changed(other):
        return {kind for kind in TYPES if before[kind].version != other[kind].version}

    assert changed(same) == set()
    assert changed(moved) == {ENDPOINTS}
    assert changed(renamed) == {ROUTES}


def table_of(*services):
    return routes.routes(Catalog.build(services), GenerationCache())


def leaves(branch):
    """List the routes of each leaf below a branch, in the order in which Envoy comes to them."""
    if branch.HasField("action"):
        return [route_components_pb2.RouteList.FromString(branch.action.typed_config.value).routes]
    return leaves_of(branch.matcher)


def leaves_of(matcher):
    tree = matcher.matcher_tree
    branches = [field.on_match for field in matcher.matcher_list.matchers]
    branches += [
        branch for _, branch in sorted({**tree.exact_match_map.map, **tree.prefix_match_map.map}.items())
    ]
    return [leaf for branch in (*branches, matcher.on_no_match) for leaf in leaves(branch)]


def in_short(leaf):
    kinds = []
    for route in leaf:
        if not route.HasField("direct_response"):
            kind = f"to {route.route.cluster}"
        elif route.direct_response.status == 200:
            kind = "health" if route.match.path == "/health" else "models"
        else:
            kind = json.loads(route.direct_response.body.inline_string)["error"]["code"]
        if kind not in kinds[-1:]:
            kinds.append(kind)
    return kinds


def test_headers_then_path_then_service_header_then_model_then_refusals():
    [host] = table_of(service("a"), service("b")).virtual_hosts
    unreadable = ["invalid_json", "invalid_choices"]
    both = [[*unreadable, "to llm/a"], [*unreadable, "to llm/b"], [*unreadable, "service_not_found"]]
    assert [in_short(leaf) for leaf in leaves_of(host.matcher)] == [
        ["empty_body"],
        ["unsupported_media_type"],
        ["unsupported_encoding"],
        *both,  # by path
        *both,  # by header
        [*unreadable, "model_missing", "to llm/a", "to llm/b", "model_not_found"],
        ["models", "method_not_allowed", "model_not_found", "path_not_found"],
        ["health", "method_not_allowed", "path_not_found"],
    ]


@pytest.mark.parametrize("models", [(), ("chat",), ("chat", "chat-large")])
def test_a_service_has_one_route_for_all_its_models(models):
    [host] = table_of(service("a", models=models)).virtual_hosts
    *_, by_model, _about_models, _rest = leaves_of(host.matcher)
    [asked] = [route.match.dynamic_metadata[0].value for route in by_model if route.HasField("route")]
    values = asked.or_match.value_matchers or [asked]
    assert [each.string_match.exact for each in values] == ["llm/a", *models]


def test_without_services_all_is_refused():
    [host] = table_of().virtual_hosts
    assert not [route for leaf in leaves_of(host.matcher) for route in leaf if route.HasField("route")]


def test_a_service_adds_routes_to_what_its_own_requests_try_and_to_nothing_else_but_models():
    """A request by path or header tries as many routes whether there are two services or fifty."""

    def longest(services):
        [host] = table_of(*(service(f"s{number}") for number in range(services))).virtual_hosts
        *others, _by_model, _about_models, _rest = [len(leaf) for leaf in leaves_of(host.matcher)]
        return max(others)

    assert longest(2) == longest(50)


def test_a_listing_of_any_length_fits():
    table = table_of(*(service(f"model-{number}") for number in range(500)))
    [listing] = [
        route.direct_response.body.inline_string
        for leaf in leaves_of(table.virtual_hosts[0].matcher)
        for route in leaf
        if route.match.path == names.MODELS_PATH
    ]
    assert len(json.loads(listing)["data"]) == 500
    assert len(listing) == table.max_direct_response_body_size_bytes.value > 4096


def test_the_older_claim_to_a_model_name_wins():
    older = service("zeta", models=("chat",), since="2026-01-01T00:00:00Z")
    newer = service("alpha", models=("chat", "llm/zeta"), since="2026-02-01T00:00:00Z")
    owners = Catalog.build([newer, older]).model_owners()
    assert owners == {
        "chat": ServiceKey("llm", "zeta"),
        "llm/zeta": ServiceKey("llm", "zeta"),
        "llm/alpha": ServiceKey("llm", "alpha"),
    }
    assert replace(older, since="2026-03-01T00:00:00Z").key == older.key


def test_the_documentation_lists_every_code_of_an_error():
    """Those of Envoy's routes and own failures, of picker and relay; of metrics' page the picker's."""
    docs = Path(__file__).parents[3] / "docs"
    guarded = replace(service("chat").config, allowed_clients=("search",), requests_per_minute=1)
    told = json.dumps(as_json(Catalog.build([Service(guarded, ("10.0.0.2",))])))
    envoys = set(re.findall(r"\bcode[\\\"]*: ?[\\\"]*([a-z_]+)", told + chart_files()["envoy.yaml"]))
    pickers, relays = (
        set(re.findall(r"Reply\(\s*\d+,\s*\"(\w+)\"", inspect.getsource(each))) for each in (picker, streams)
    )
    section = (docs / "routing.md").read_text().partition("\n## Errors")[2]
    rows = re.findall(r"^\| \d[\d, a-z]+ \| ([^|]*) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == envoys - {"null"} | pickers | relays
    [line] = re.findall(r"^`code` of a refusal is (.*?);", (docs / "metrics.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == pickers
