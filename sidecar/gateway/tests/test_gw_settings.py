"""The picker's environment."""

import pytest

from headrace_gateway.settings import Settings, SettingsError, from_environment


def test_defaults_and_values():
    assert from_environment({}) == Settings()
    given = {"HEADRACE_WATCH_NAMESPACES": "a, b,", "HEADRACE_MAX_BODY_BYTES": "1024"}
    assert from_environment(given) == Settings(watch_namespaces=("a", "b"), max_body_bytes=1024)


def test_a_lease_needs_to_know_who_asks():
    given = {"HEADRACE_LEASE": "picker", "HEADRACE_POD_NAMESPACE": "system", "HEADRACE_POD_NAME": "picker-1"}
    assert from_environment(given) == Settings(lease="picker", pod_namespace="system", pod_name="picker-1")
    for missing in ("HEADRACE_POD_NAMESPACE", "HEADRACE_POD_NAME"):
        with pytest.raises(SettingsError, match=missing):
            from_environment({key: value for key, value in given.items() if key != missing})


@pytest.mark.parametrize("value", ["0", "-1", "4Mi", "1.5"])
def test_a_wrong_size_names_the_variable(value):
    with pytest.raises(SettingsError, match="HEADRACE_MAX_BODY_BYTES"):
        from_environment({"HEADRACE_MAX_BODY_BYTES": value})
