"""Specs of LLMServices out of the definition's own schema: a value for every field, and changes of one field.

A leaf is a field without fields of its own, named by its path: `engine.image`, `podTemplate.volumes[].name`
(of an item of a list), `podTemplate.nodeSelector{}` (of a map). What the schema says of a leaf (its type,
bounds and choices) gives the values to try; texts are tried from words that some field takes. Many break a
rule that spans fields: the API server says so, and another is tried.
"""

import copy
import functools
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from e2e.cluster.places import REPOSITORY

Schema = Mapping[str, Any]
Spec = dict[str, Any]

_DEFINITION = REPOSITORY / "crds/llmservices.headrace.dev.yaml"
_DIGEST = "sha256:" + "a1" * 32
_TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
_NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}}
_APART = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "a"}}}
_PODS = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}}
_DURATIONS = ("500ms", "30s", "5m", "90m", "1h")
_QUANTITIES = (1, "1", "1.0", "500m", "2", "1Gi", "1024Mi", "4Mi")
VOLUME_CLAIMS = ("a", "b", "team-a", "models", "500ms", "5m", "1")
"""What may be the name of a PersistentVolumeClaim."""
_WORDS = (*VOLUME_CLAIMS, "example/vllm:1", "example.com/device", "/data")
_KEYS = ("team", "example.com/a", "cpu", "memory", "example.com/device", "hugepages-2Mi")
_BY_NAME: Mapping[str, tuple[Any, ...]] = {
    "source": ("hf://a/b", "hf://a/c", "pvc://models/tiny", "pvc://models"),
    "image": (
        *("example/vllm:1", "example/vllm:2", "example/vllm:latest", "example/vllm", "example.com:5000/vllm"),
        *(f"example/vllm@{_DIGEST}", f"example/vllm:latest@{_DIGEST}", "example.com:5000/vllm:1"),
    ),
    "args": ("--enforce-eager", "--max-num-seqs=4", "--no-enable-prefix-caching", "--seed=1", "1", "1.0"),
    "reference": ("example/weights:1", "example/weights:2", "example/weights:latest", "example/weights"),
    "resourceName": ("nvidia.com/gpu", "example.com/device"),
    "mountPath": ("/data", "/tmp", "/data/b/", "/weights"),
    "affinity": ({}, _NODES, _PODS),
    "labelSelector": ({}, {"matchLabels": {"team": "a"}}),
    "matchLabelKeys": ("pod-template-hash", "example.com/a"),
    "topologyKey": ("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
    "expression": ("true", "device.driver == 'gpu.nvidia.com'"),
    "fieldPath": ("metadata.name", "status.podIPs", "metadata.labels['team']"),
}
"""Values of fields of these names, wherever they are."""

_COMPILED = {"expression"}  # what the API server says of it when it makes the object, and no schema can

WRONG: tuple[Any, ...] = (
    *(
        "",
        "a..b",
        "é",
        "-x",
        "A b",
        "a:b",
        "..",
        "../x",
        "/..",
        "/",
        "0s",
        "x" * 300,
        "requests.a/b",
        "a/b/c",
    ),
    *("1e3", "-1", "/cache", "/data:x", "headrace", "shm", "kubernetes.io/config.mirror", "a\n", "Ab", "a_b"),
    *(-1, 2**31, 2**63, True, [], {}),
)
"""What some field takes and most must not."""


@functools.cache
def schema() -> Schema:
    """Read the schema of the spec from the definition."""
    version = yaml.safe_load(_DEFINITION.read_text())["spec"]["versions"][0]
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def leaves(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the paths and schemas of all leaves below."""
    if node.get("properties"):
        for name, child in node["properties"].items():
            yield from leaves(child, f"{path}.{name}" if path else name)
    elif isinstance(node.get("items"), dict):
        yield from leaves(node["items"], f"{path}[]")
    elif isinstance(node.get("additionalProperties"), dict):
        yield from leaves(node["additionalProperties"], f"{path}{{}}")
    else:
        yield path, node


def is_live(node: Schema, path: str) -> bool:
    """Tell whether the schema says that a change of this leaf replaces no pod."""
    live = "A change is live." in node.get("description", "")
    for name in path.replace("[]", "").replace("{}", "").split("."):
        node = node["properties"][name]
        live |= "A change is live." in node.get("description", "")
        while isinstance(node.get("items"), dict):
            node = node["items"]
    return live


def flat(value: Any, node: Schema, path: str = "") -> dict[str, list[str]]:
    """Return what a spec has at each leaf, as JSON; a leaf in a list or map may be there several times."""
    found: dict[str, list[str]] = {}

    def merge(more: dict[str, list[str]]) -> None:
        for place, texts in more.items():
            found.setdefault(place, []).extend(texts)

    if node.get("properties"):
        for name, child in node["properties"].items():
            if isinstance(value, dict) and name in value:
                merge(flat(value[name], child, f"{path}.{name}" if path else name))
    elif isinstance(node.get("items"), dict):
        for item in value or ():
            merge(flat(item, node["items"], f"{path}[]"))
    elif isinstance(node.get("additionalProperties"), dict):
        for key, item in (value or {}).items():
            merge({f"{path}{{}}": [json.dumps([key, item])]})
    else:
        found[path] = [json.dumps(value, sort_keys=True)]
    return found


def _keep_one_arm(accelerator: Spec, changed: str) -> None:
    """Leave out what cannot be beside the field that was changed."""
    if changed in accelerator and changed != "type":
        accelerator["type"] = "GPU"
        accelerator.pop({"dra": "devicePlugin", "devicePlugin": "dra"}[changed], None)
    elif accelerator.get("type") == "CPU":
        accelerator.pop("dra", None)
        accelerator.pop("devicePlugin", None)


class Maker:
    """Makes specs; the same dice give the same ones. `wrong`: how often a leaf gets a value of `WRONG`."""

    def __init__(self, dice: random.Random, wrong: float = 0.0) -> None:
        self._dice, self._wrong = dice, wrong
        self._schema = schema()
        self.leaves = dict(leaves(self._schema))

    def changed(self, spec: Spec, leaf: str) -> Spec:
        """Copy a spec in which this leaf, and what it cannot be without, is another or has gone."""
        spec = copy.deepcopy(spec)
        names = leaf.split(".")
        self._change(spec, self._schema, names)
        if names[0] == "accelerator" and "accelerator" in spec:
            _keep_one_arm(spec["accelerator"], names[1])
        if leaf.startswith("podTemplate.volumeMounts") and "podTemplate" in spec:  # each names a volume
            volumes = spec["podTemplate"].setdefault("volumes", [])
            for mount in spec["podTemplate"].get("volumeMounts", ()):
                if mount.get("name") not in [volume.get("name") for volume in volumes]:
                    volumes.append({"name": mount.get("name"), "emptyDir": {}})
        return spec

    def value(self, name: str, node: Schema) -> Any:
        """Make something that the schema may or may not allow."""
        dice = self._dice
        whole = not {"properties", "items", "additionalProperties"} & node.keys()
        if whole and name not in _COMPILED and dice.random() < self._wrong:
            return dice.choice(WRONG)
        if node.get("x-kubernetes-preserve-unknown-fields") or name in _BY_NAME:
            if node.get("type") == "array":
                return dice.sample(_BY_NAME[name], dice.choice([0, 1, 1, 2]))
            return copy.deepcopy(dice.choice(_BY_NAME.get(name, ({},))))
        if "enum" in node:
            return dice.choice(node["enum"])
        if node.get("x-kubernetes-int-or-string"):
            return dice.choice(_QUANTITIES)
        return self._typed(node)

    def _typed(self, node: Schema) -> Any:
        dice = self._dice
        match node.get("type"):
            case "object" if "additionalProperties" in node:
                keys = dice.sample(_KEYS, dice.choice([0, 1, 1, 2]))
                return {key: self.value("", node["additionalProperties"]) for key in keys}
            case "object":
                return self._object(node)
            case "array":
                return [self.value("", node["items"]) for _ in range(dice.choice([0, 1, 1, 2]))]
            case "integer":
                low, high = node.get("minimum", 0), node.get("maximum", 100)
                return dice.choice([low, min(low + 1, high), min(low + 7, high), high])
            case "boolean":
                return dice.random() < 0.5
            case _:
                rules = str(node.get("x-kubernetes-validations", ""))
                return dice.choice(_DURATIONS if "(ms|s|m|h)" in rules else _WORDS)

    def _object(self, node: Schema, wanted: str = "") -> Spec:
        needed = {*node.get("required", ()), wanted}
        chosen = {
            name: child
            for name, child in node["properties"].items()
            if name in needed or self._dice.random() < 0.2
        }
        return {name: self.value(name, child) for name, child in chosen.items()}

    def _change(self, place: Spec, node: Schema, names: list[str]) -> None:
        """Change what `names` lead to below an object; each step may be made anew on the way."""
        word, rest = names[0], names[1:]
        name = word.removesuffix("[]").removesuffix("{}")
        child = node["properties"][name]
        if name in place and name not in node.get("required", ()) and self._dice.random() < 0.15:
            del place[name]
        elif word.endswith("[]") and (rest or place.get(name)):
            self._change_item(place.setdefault(name, []), child["items"], name, rest)
        elif word.endswith("{}"):
            key = self._dice.choice(_KEYS)
            place[name] = {**place.get(name, {}), key: self.value("", child["additionalProperties"])}
        elif rest:
            if not isinstance(place.get(name), dict):
                place[name] = self._object(child, rest[0].removesuffix("[]").removesuffix("{}"))
            self._change(place[name], child, rest)
        else:
            place[name] = self.value(name, child)

    def _change_item(self, items: list[Any], node: Schema, name: str, rest: list[str]) -> None:
        if not rest:
            items[self._dice.randrange(len(items))] = self.value(name if name in _BY_NAME else "", node)
            if name in _BY_NAME:
                items[:] = self._dice.sample(_BY_NAME[name], self._dice.randint(1, 2))
            return
        if not items or self._dice.random() < 0.2:
            items.append(self._object(node, rest[0].removesuffix("[]").removesuffix("{}")))
        item = items[self._dice.randrange(len(items))]
        if isinstance(item, dict):
            self._change(item, node, rest)
