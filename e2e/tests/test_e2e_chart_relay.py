"""The relay beside Envoy: where the two meet, and who has the gateway's key."""

import pytest

from e2e import helm
from e2e.helm import of
from headrace_gateway.names import ENGINES_SOCKET, RELAY_SOCKET
from headrace_gateway.settings import Settings, read_settings
from headrace_operator.names import PRIVATE_KEY_FILE

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]  # in the tier whose preparation builds Helm


def test_envoy_and_relay_meet_in_a_folder_and_the_relay_alone_has_the_key():
    defaults = helm.render()
    spec = of(defaults, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]
    [envoy], [relay] = spec["containers"], spec["initContainers"]
    assert relay["restartPolicy"] == "Always"  # so that it ends after Envoy
    [folder] = [each["mountPath"] for each in relay["volumeMounts"] if each["name"] == "relay"]
    assert {"name": "relay", "mountPath": folder} in envoy["volumeMounts"]
    assert folder == Settings().relay_folder
    bootstrap = of(defaults, "ConfigMap", "headrace-envoy")["data"]["envoy.yaml"]
    assert f"{folder}/{RELAY_SOCKET}" in bootstrap
    assert f"{folder}/{ENGINES_SOCKET}" in bootstrap
    [secret] = [each["secret"] for each in spec["volumes"] if "secret" in each]
    assert secret == {"secretName": "headrace-gateway-key", "optional": True}  # made later than these pods
    settings = read_settings({each["name"]: each["value"] for each in relay["env"]})
    [mounted] = [each["mountPath"] for each in relay["volumeMounts"] if each["name"] == "gateway-key"]
    assert settings.gateway_key == f"{mounted}/{PRIVATE_KEY_FILE}"
    assert settings.memory_bytes == 640 << 20
