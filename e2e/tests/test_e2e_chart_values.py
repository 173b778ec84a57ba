"""A wrong value stops the installation with a message that names it."""

import json

import pytest
import yaml

from e2e import helm


def set_path(path, value):
    """{"a": {"b": value}} of "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@pytest.mark.apiserver  # in the tier whose preparation builds Helm
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 2),
        ("gateway.replica", 2),
        ("gateway.replicas", 0),
        ("gateway.replicas", "two"),
        ("gateway.drainSeconds", 0),
        ("gateway.url", "llm.example.com"),
        ("gateway.tls.secretName", "Not A Name"),
        ("gateway.apiKeys.secret", "keys"),
        ("picker.replicas", 0),
        ("gateway.service.type", "Loadbalancer"),
        ("gateway.service.port", 70000),
        ("image.pullPolicy", "Sometimes"),
        ("image.registry", "example.com/headrace/"),
        ("image.tag", "with space"),
        ("image.pullSecrets", ["plain"]),
        ("watchNamespaces", "llm"),
        ("watchNamespaces", ["Not_A_Name"]),
        ("crds.keep", "yes please"),
        ("operator.allowHostPath", "no"),
        ("operator.allowServiceAccountName", "no"),
        ("operator.resources", {"limit": {"cpu": 1}}),
        ("networkPolicies.apiServerPorts", []),
        ("monitoring.podMonitors.enabled", "yes"),
        ("monitoring.podMonitors.interval", "soon"),
        ("monitoring.rules.labels", ["release"]),
        ("monitoring.dashboard", {"enabled": True}),
    ],
)
def test_wrong_values_are_refused_by_name(path, value):
    with pytest.raises(helm.HelmError) as refused:
        helm.render(set_path(path, value))
    message = str(refused.value)
    assert "values don't meet the specifications of the schema" in message
    assert path.rsplit(".", maxsplit=1)[-1] in message


def test_the_schema_knows_every_value_and_no_other():
    schema = json.loads((helm.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((helm.CHART / "values.yaml").read_text())

    def compare(schema, values, path=""):
        known = schema["properties"].keys() - {"global"}
        assert known == values.keys(), path
        assert schema["additionalProperties"] is False, path
        for key, value in values.items():
            if isinstance(value, dict) and "properties" in schema["properties"][key]:
                compare(schema["properties"][key], value, f"{path}.{key}")

    compare(schema, values)
