"""The attack campaign: what it calls refused, and the real gateway under it."""

import pytest

from e2e.bench.attacks import cases as attack_list
from e2e.bench.attacks import study as attacks
from e2e.bench.attacks.study import Answer, still_armed
from e2e.bench.tenants import cases as tenant_list
from e2e.bench.tenants import study as tenants
from headrace_engine.contracts import PerRequest, Slo

ERROR = b'{"error": {"message": "no", "type": "invalid_request_error", "param": null, "code": "x"}}'
HEAD = "post /v1/chat/completions http/1.1\r\nx-headrace-client: campaign\r\nx-request-id: 1\r\n"


@pytest.mark.parametrize(
    ("body", "clear"),
    [(ERROR, True), (b"", False), (b"no", False), (b'{"error": {"message": "no"}}', False), (b"[]", False)],
)
def test_an_error_must_be_one_that_clients_can_parse(body, clear):
    assert Answer(400, body).is_error() is clear


def test_what_still_counts_at_the_engine_is_found():
    plain = attack_list.chat()
    assert still_armed(HEAD, plain) == ""
    assert "x-vllm-priority" in still_armed(HEAD + "x-vllm-priority: 1\r\n", plain)
    assert "authorization" in still_armed(HEAD + "authorization: bearer x\r\n", plain)
    assert "x-api-key" in still_armed(HEAD + "x-api-key: x\r\n", plain)
    assert "another client" in still_armed(HEAD.replace("campaign", "root"), plain)
    assert still_armed(HEAD.replace("id: 1", "id: " + attack_list.FORGED_ID), plain) == ""
    assert still_armed(HEAD, attack_list.chat(**attack_list.FORGED_BODY)) == ""


def test_a_forged_override_is_only_harmless_where_none_is_allowed(monkeypatch):
    asking = Slo(ttft_ms=500, per_request=PerRequest(ttft_ms=1))
    monkeypatch.setattr(attacks, "SLO", asking)
    assert "override" in still_armed(HEAD, attack_list.chat(**attack_list.FORGED_BODY))


def test_every_attack_has_a_name_of_its_own_and_says_what_refuses_it():
    names = [attack.name for attack in attack_list.attacks(1000)]
    assert len(names) == len(set(names)) > 100
    assert all(attack.statuses for attack in attack_list.attacks(1000))


def test_every_forbidden_request_has_a_name_of_its_own_and_changes_one_thing():
    requests = tenant_list.forbidden(tenant_list.Known("uid", "pod", "foreign"))
    names = [request.name for request in requests]
    assert len(names) == len(set(names)) > 60
    plain = tenant_list.deployment(tenant_list.Known("uid", "pod", "foreign"))
    for name, change in tenant_list.DEPLOYMENTS.items():
        changed = tenant_list.deployment(tenant_list.Known("uid", "pod", "foreign"), change)
        assert changed != plain, name


@pytest.mark.apiserver
@pytest.mark.envoy
@pytest.mark.timeout(400)
def test_no_neighbour_gets_through():
    outcomes = tenants.apart(print)
    assert {name: wrong for name, wrong in outcomes.items() if wrong} == {}
    assert len(outcomes) >= 40


@pytest.mark.envoy
@pytest.mark.timeout(240)
async def test_nothing_gets_through():
    outcomes = await attacks.measure(print, hurry=True)
    assert {name: wrong for name, wrong in outcomes.items() if wrong} == {}
    assert len(outcomes) > 200
