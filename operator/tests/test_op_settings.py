"""Settings from the environment: defaults, and errors that name the variable."""

import pytest

from headrace_operator.settings import read_settings

IMAGE = {"HEADRACE_SIDECAR_IMAGE": "example/sidecar:1"}


def test_defaults():
    settings = read_settings(IMAGE)
    assert settings.sidecar_image == "example/sidecar:1"
    assert settings.gateway == "http://headrace-gateway.headrace-system"
    assert settings.watch_namespaces == ()
    assert not settings.allow_host_path
    assert not settings.allow_service_account


def test_everything_set():
    settings = read_settings(
        IMAGE
        | {
            "HEADRACE_SYSTEM_NAMESPACE": "sys",
            "HEADRACE_GATEWAY_URL": "https://llm.example/",
            "HEADRACE_WATCH_NAMESPACES": "a, b,c",
            "HEADRACE_GATEWAY_KEY": "own-key",
            "HEADRACE_GATEWAY_API_KEYS": "true",
            "HEADRACE_ALLOW_HOST_PATH": "true",
            "HEADRACE_ALLOW_SERVICE_ACCOUNT_NAME": "true",
            "HEADRACE_METRICS_PORT": "1234",
        }
    )
    assert settings.gateway == "https://llm.example"
    assert settings.watch_namespaces == ("a", "b", "c")
    assert settings.gateway_key == "own-key"
    assert settings.gateway_api_keys
    assert settings.allow_host_path
    assert settings.allow_service_account
    assert settings.metrics_port == 1234


@pytest.mark.parametrize(
    ("change", "variable"),
    [
        ({"HEADRACE_SIDECAR_IMAGE": " "}, "HEADRACE_SIDECAR_IMAGE"),
        ({"HEADRACE_METRICS_PORT": "high"}, "HEADRACE_METRICS_PORT"),
        ({"HEADRACE_METRICS_PORT": "65536"}, "HEADRACE_METRICS_PORT"),
        ({"HEADRACE_ALLOW_HOST_PATH": "yes"}, "HEADRACE_ALLOW_HOST_PATH"),
        ({"HEADRACE_GATEWAY_API_KEYS": "gateway-clients"}, "HEADRACE_GATEWAY_API_KEYS"),
    ],
)
def test_mistakes_name_the_variable(change, variable):
    with pytest.raises(ValueError, match=variable):
        read_settings(IMAGE | change)
