"""The picker's environment."""

import pytest

from headrace_gateway.settings import Settings, SettingsError, read_settings


def test_defaults_and_values():
    assert read_settings({}) == Settings()
    given = {"HEADRACE_WATCH_NAMESPACES": "a, b,", "HEADRACE_MAX_BODY_BYTES": "1024"}
    assert read_settings(given) == Settings(watch_namespaces=("a", "b"), max_body_bytes=1024)


def test_a_lease_needs_to_know_who_asks():
    given = {"HEADRACE_LEASE": "picker", "HEADRACE_POD_NAMESPACE": "system", "HEADRACE_POD_NAME": "picker-1"}
    assert read_settings(given) == Settings(lease="picker", pod_namespace="system", pod_name="picker-1")
    for missing in ("HEADRACE_POD_NAMESPACE", "HEADRACE_POD_NAME"):
        with pytest.raises(SettingsError, match=missing):
            read_settings({key: value for key, value in given.items() if key != missing})


@pytest.mark.parametrize("value", ["0", "-1", "4Mi", "1.5"])
def test_a_wrong_size_names_the_variable(value):
    with pytest.raises(SettingsError, match="HEADRACE_MAX_BODY_BYTES"):
        read_settings({"HEADRACE_MAX_BODY_BYTES": value})


def test_peers_need_to_know_which_of_them_this_is():
    given = {"HEADRACE_PEERS": "picker", "HEADRACE_POD_IP": "10.0.0.1"}
    assert read_settings(given) == Settings(peers="picker", pod_ip="10.0.0.1")
    with pytest.raises(SettingsError, match="HEADRACE_POD_IP is not set; HEADRACE_PEERS needs it"):
        read_settings({"HEADRACE_PEERS": "picker"})


def test_an_endpoint_picker_has_a_service_of_its_own_namespace():
    given = {"HEADRACE_SERVICE": "chat", "HEADRACE_POD_NAMESPACE": "llm", "HEADRACE_TLS": "off"}
    read = read_settings(given)
    assert (read.service, read.pod_namespace, read.tls) == ("chat", "llm", False)
    assert read_settings({}).tls
    with pytest.raises(SettingsError, match="HEADRACE_POD_NAMESPACE is not set; HEADRACE_SERVICE needs it"):
        read_settings({"HEADRACE_SERVICE": "chat"})
    with pytest.raises(SettingsError, match="HEADRACE_TLS='no': give on or off"):
        read_settings({"HEADRACE_TLS": "no"})
