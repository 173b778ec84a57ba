"""What the operator makes for a group of a GPUPool."""

import pytest
from op_golden import SETTINGS
from op_pools import TOKEN, pool
from op_world import pace

from headrace_operator import names
from headrace_operator.desired.turn_server import turn_server_objects


@pytest.fixture
def objects():
    of = pool(fast=["code", "chat"])
    return {each["kind"]: each for each in turn_server_objects(of, of.groups[0], TOKEN, SETTINGS)}


def test_all_is_the_pools_and_named_after_its_group(objects):
    assert list(objects) == ["ConfigMap", "NetworkPolicy", "Service", "Deployment"]
    for each in objects.values():
        metadata = each["metadata"]
        assert metadata["name"] == "shared-fast-turns"
        assert metadata["labels"]["headrace.dev/gpu-pool"] == "shared"
        assert "headrace.dev/service" not in metadata["labels"]
        [owner] = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUPool", "shared", "llm-shared")


def test_only_members_reach_the_server(objects):
    spec = objects["NetworkPolicy"]["spec"]
    [rule] = spec["ingress"]
    [who] = rule["from"]
    assert who["podSelector"]["matchExpressions"] == [
        {"key": "headrace.dev/service", "operator": "In", "values": ["chat", "code"]}
    ]
    assert rule["ports"] == [{"port": names.TURNS_PORT, "protocol": "TCP"}]
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (spec["podSelector"]["matchLabels"], objects["Service"]["spec"]["selector"]):
        assert selector.items() <= labels.items()


def test_another_token_starts_another_server(objects):
    of = pool(fast=["code", "chat"])
    [*_, other] = turn_server_objects(of, of.groups[0], "6f" * 32, SETTINGS)
    assert other["spec"]["template"] != objects["Deployment"]["spec"]["template"]
    assert pace(objects["Deployment"]) == (0, 1)


def test_the_server_has_no_rights_and_no_limit_of_cpu(objects):
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    assert "cpu" not in container["resources"]["limits"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
