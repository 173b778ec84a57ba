"""The mutation benchmark's specs: every field of the schema is among those that change."""

import random

import pytest
import yaml

from e2e.bench.mutations.specs import Maker, flat, is_live, leaves, schema
from e2e.bench.operator.api import DEFINITIONS

SCHEMA = schema()
LEAVES = dict(leaves(SCHEMA))
PLAIN = {"model": {"source": "hf://a/b"}, "engine": {"image": "example/vllm:1"}, "replicas": 1}


def described(node):
    """All parts of a schema that have no parts."""
    below = [*node.get("properties", {}).values()]
    below += [node[word] for word in ("items", "additionalProperties") if isinstance(node.get(word), dict)]
    return sum(map(described, below)) if below else 1


def test_every_part_of_the_schema_is_a_leaf_or_has_some():
    version = yaml.safe_load((DEFINITIONS / "llmservices.headrace.dev.yaml").read_text())["spec"]["versions"][
        0
    ]
    assert described(version["schema"]["openAPIV3Schema"]["properties"]["spec"]) == len(LEAVES) > 100


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_is_changed_sometimes(leaf):
    maker = Maker(random.Random(leaf))
    before = flat(PLAIN, SCHEMA).get(leaf)
    assert any(flat(maker.changed(PLAIN, leaf), SCHEMA).get(leaf) != before for _ in range(50))


def test_the_same_dice_give_the_same_specs():
    first, second = (Maker(random.Random(1)) for _ in range(2))
    assert [first.changed(PLAIN, leaf) for leaf in LEAVES] == [second.changed(PLAIN, leaf) for leaf in LEAVES]


def test_what_a_change_does_is_read_from_the_schema():
    assert is_live(SCHEMA, "replicas")
    assert is_live(SCHEMA, "scheduling.larry.alpha")
    assert not is_live(SCHEMA, "disruption.drainTimeout")
    assert not is_live(SCHEMA, "podTemplate.volumes[].configMap.name")
    assert not is_live(SCHEMA, "podTemplate.nodeSelector{}")
