"""The CRD's own quality: generated, bounded, described, structural."""

import dataclasses
import re
import string

import pytest
import yaml
from op_kube import CRDS

from headrace_engine.contracts import GatewayConfig, Slo
from headrace_engine.contracts.codec import camel
from headrace_engine.policies import registry
from headrace_operator.api import Condition, Reason, ServiceStatus, crd
from headrace_operator.api.reserved import FLAGS_BY_FIELD, VARIABLE_BY_FIELD
from headrace_operator.api.serving import block_name

VERSION = crd.definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def walk(schema, path=""):
    """Every schema node with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from walk(schema[word], f"{path}[]")


NODES = dict(walk(SCHEMA))
ROUTE_NODES, POOL_NODES = (
    dict(walk(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    for definition in (crd.route_definition(), crd.pool_definition())
)
SPEC = {path: node for path, node in NODES.items() if path.startswith(".spec.")}


def test_the_committed_files_are_what_the_types_say():
    assert {path.name: path.read_text() for path in CRDS.glob("*.yaml")} == crd.definition_files(), (
        "run `make generate`"
    )


@pytest.mark.parametrize("nodes", [NODES, ROUTE_NODES, POOL_NODES], ids=["LLMService", "LLMRoute", "GPUPool"])
def test_every_array_string_and_map_is_bounded(nodes):
    unbounded = [
        path
        for path, node in nodes.items()
        if path not in {".apiVersion", ".kind"}
        and (
            (node.get("type") == "array" and "maxItems" not in node)
            or (node.get("type") == "string" and not {"maxLength", "enum"} & node.keys())
            or ("additionalProperties" in node and "maxProperties" not in node)
        )
    ]
    assert unbounded == []


# A service that is stored with a default which then changes has another hash of what shapes its pods: an
# upgrade would replace them. So these stay; what must be free to change has no default, or another name.
SHAPING = (
    ".spec.model.",
    ".spec.engine.",
    ".spec.accelerator.",
    ".spec.podTemplate.",
    ".spec.disruption.drainTimeout",
)
DEFAULTS_THAT_SHAPE_PODS = {
    ".spec.model.tokenSecretRef.key": "token",
    ".spec.engine.tensorParallelSize": 1,
    ".spec.engine.startTimeout": "1h",
    ".spec.accelerator.type": "GPU",
    ".spec.disruption.drainTimeout": "5m",
    ".spec.podTemplate.tolerations[].operator": "Equal",
    ".spec.podTemplate.volumeMounts[].readOnly": False,
    ".spec.podTemplate.securityContext.runAsNonRoot": False,
    ".spec.podTemplate.securityContext.readOnlyRootFilesystem": False,
}


def test_no_default_changes_of_what_shapes_pods():
    defaults = {path: node["default"] for path, node in SPEC.items() if "default" in node}
    shaping = {path: value for path, value in defaults.items() if path.startswith(SHAPING)}
    values = {path: value for path, value in shaping.items() if not isinstance(value, dict)}
    assert values == DEFAULTS_THAT_SHAPE_PODS


def test_a_list_that_may_not_be_empty_is_atomic():
    """Server-side apply takes a set or map away with its last item: unset may mean the contrary of empty."""
    required = {path: node for path, node in NODES.items() if node.get("minItems")}
    assert required
    assert [path for path, node in required.items() if node.get("x-kubernetes-list-type") != "atomic"] == []


def test_every_field_says_what_a_change_does():
    silent = [
        path
        for path, node in SPEC.items()
        if not path.endswith("[]")
        and "properties" not in node
        and not re.search(r"A change (is live|rolls the pods)\.", node.get("description", ""))
    ]
    assert silent == []


def test_every_default_is_described():
    defaults = {path: node for path, node in SPEC.items() if not isinstance(node.get("default", {}), dict)}
    assert len(defaults) > 10
    assert [path for path, node in defaults.items() if "Default: " not in node["description"]] == []


def test_the_schema_is_structural():
    for path, node in NODES.items():
        assert not {"$ref", "$defs", "title", "const"} & node.keys(), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert "null" not in str(node.get("anyOf", "")), path


def test_every_list_says_how_writers_share_it():
    lists = {path: node for path, node in NODES.items() if node.get("type") == "array"}
    assert len(lists) > 10
    assert [path for path, node in lists.items() if "x-kubernetes-list-type" not in node] == []


def test_a_rule_that_blames_a_field_names_one_that_is_there():
    blamed = [
        (path, node, rule["fieldPath"])
        for path, node in NODES.items()
        for rule in node.get("x-kubernetes-validations", [])
        if "fieldPath" in rule
    ]
    assert len(blamed) > 10
    for path, node, field in blamed:
        place = node
        for name in field.removeprefix(".").split("."):
            assert name in place["properties"], (path, field)
            place = place["properties"][name]


def test_no_number_is_a_float():
    assert [path for path, node in NODES.items() if node.get("type") == "number"] == []


def test_every_rule_has_a_message():
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) > 20
    assert all(rule["message"].strip(string.whitespace) for rule in rules)


def test_each_policy_has_its_settings():
    scheduling = NODES[".spec.scheduling"]["properties"]
    assert scheduling["policy"]["enum"] == list(registry.policy_names())
    for name in registry.policy_names():
        wanted = registry.parameter_schema(name).get("properties")
        assert bool(wanted) == (block_name(name) in scheduling)
        if wanted:
            assert scheduling[block_name(name)]["properties"].keys() == wanted.keys()


def test_columns_scale_and_status():
    names = [column["name"] for column in VERSION["additionalPrinterColumns"]]
    told = ["Accepted", "Ready", "Reason", "Desired", "Serving", "Policy", "Applied", "Degraded"]
    assert names == [*told, "Model", "URL", "Age"]
    assert VERSION["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert crd.definition()["spec"]["names"]["shortNames"] == ["llms"]


# Every field that a user may have set: losing one breaks their objects.
PUBLISHED = [
    "accelerator.devicePlugin.resourceName",
    "accelerator.dra.deviceClassName",
    "accelerator.dra.selectors",
    "accelerator.type",
    "disruption.drainTimeout",
    "disruption.maxSurge",
    "disruption.maxUnavailable",
    "engine.args",
    "engine.blockSize",
    "engine.env",
    "engine.gpuMemoryUtilizationPercent",
    "engine.image",
    "engine.maxModelLen",
    "engine.startTimeout",
    "engine.tensorParallelSize",
    "model.cache.claimName",
    "model.revision",
    "model.servedName",
    "model.source",
    "model.tokenSecretRef.key",
    "model.tokenSecretRef.name",
    "podTemplate.affinity",
    "podTemplate.imagePullSecrets",
    "podTemplate.metadata.annotations",
    "podTemplate.metadata.labels",
    "podTemplate.nodeSelector",
    "podTemplate.priorityClassName",
    "podTemplate.resources.limits",
    "podTemplate.resources.requests",
    "podTemplate.runtimeClassName",
    "podTemplate.securityContext.fsGroup",
    "podTemplate.tolerations",
    "podTemplate.volumeMounts",
    "podTemplate.volumes",
    "prediction.predictor",
    "prediction.quantilePercent",
    "replicas",
    "routing.access.allowedClients",
    "routing.balancer",
    "routing.limits.requestsPerMinute",
    "routing.limits.requestsPerMinutePerClient",
    "routing.maxQueue",
    "routing.rebalance",
    "routing.sal.kvRelease",
    "scheduling.accelGen.gamma",
    "scheduling.accelGen.patience",
    "scheduling.doublingBudget.starvationPercent",
    "scheduling.econoServe.paddingPercent",
    "scheduling.econoServe.patience",
    "scheduling.econoServe.reservedPercent",
    "scheduling.econoServe.underPercent",
    "scheduling.larry.alpha",
    "scheduling.larry.patience",
    "scheduling.policy",
    "scheduling.slice.patience",
    "scheduling.slice.tokens",
    "scheduling.stepBudget.mode",
    "scheduling.stepBudget.tokens",
    "slo.e2e",
    "slo.e2eScalePercent",
    "slo.perRequest.enabled",
    "slo.perRequest.minE2e",
    "slo.perRequest.minTpot",
    "slo.perRequest.minTtft",
    "slo.tpot",
    "slo.ttft",
]


@pytest.mark.parametrize("field", PUBLISHED)
def test_a_published_field_stays(field):
    assert f".spec.{field}" in NODES


@pytest.mark.parametrize("field", [*FLAGS_BY_FIELD, *VARIABLE_BY_FIELD])
def test_the_advice_on_a_reserved_argument_names_a_field_that_exists(field):
    assert f".{field}" in NODES


def test_a_route_has_the_fields_of_its_contract_and_says_what_each_means():
    """Both ways: the API server drops what the schema does not know."""
    fields = {field.name for field in dataclasses.fields(GatewayConfig)} - {"namespace", "name"}
    known = {path.removeprefix(".spec.") for path in ROUTE_NODES if re.fullmatch(r"\.spec\.\w+", path)}
    assert known == {camel(field) for field in fields} | {"reserved"}  # which the picker does not serve
    slo = {path.removeprefix(".spec.slo.") for path in ROUTE_NODES if re.fullmatch(r"\.spec\.slo\.\w+", path)}
    assert slo == {camel(field.name) for field in dataclasses.fields(Slo)}
    for path, node in ROUTE_NODES.items():
        inside = path.startswith((".spec.", ".status.")) and not path.endswith("[]")
        assert not inside or node.get("description"), path


def test_status_fits_its_own_schema():
    conditions = NODES[".status.conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert conditions["maxItems"] >= len(Condition)
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", reason) for reason in Reason)
    assert set(ServiceStatus().model_dump(by_alias=True)) == set(NODES[".status"]["properties"])


def test_main_writes_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["crd", str(tmp_path / "crds")])
    crd.main()
    for plural in ("llmservices", "llmroutes", "gpupools"):
        written = yaml.safe_load((tmp_path / "crds" / f"{plural}.headrace.dev.yaml").read_text())
        assert written["metadata"]["name"] == f"{plural}.headrace.dev"
