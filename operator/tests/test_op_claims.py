"""Model names are claims: exactly one owner each, whatever the order in which services appear."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_golden import SETTINGS
from op_world import body

from headrace_operator.accept import check
from headrace_operator.api import parse
from headrace_operator.claims import Claimants, check_claim, owned_models, rivals, stronger_claim
from headrace_operator.errors import RefusedError


def service(name, served, day=1, namespace="llm"):
    model = {"source": "hf://a/b", "servedName": served}
    return parse(body(name, namespace, f"2026-01-{day:02}T00:00:00Z", model=model))


def test_the_older_service_wins_and_the_later_is_told_whose_it_is():
    old, new = service("old", "m", 1), service("new", "m", 2)
    check_claim(old, [new])
    with pytest.raises(RefusedError, match="llm/old") as caught:
        check_claim(new, [old])
    assert caught.value.reason == "ModelNameConflict"


def test_a_services_own_qualified_name_beats_an_older_claim():
    squatter, victim = service("squatter", "llm/victim", 1), service("victim", "m", 2)
    check_claim(victim, [squatter])
    with pytest.raises(RefusedError, match="llm/victim"):
        check_claim(squatter, [victim])


def test_a_name_that_is_not_asked_for_any_more_goes_to_whoever_asks_for_it():
    old, new = service("old", "other", 1), service("new", "m", 2)
    assert stronger_claim("m", old, [new]) is None
    assert stronger_claim("m", old, [new], asked=False) is new
    assert stronger_claim("m", new, [old]) is None


def test_rivals_serve_a_model_of_one_of_its_names():
    model = {"source": "hf://a/b"}
    bodies = [
        body(name, model={**model, "servedName": served})
        for name, served in (("a", "m"), ("b", "llm/victim"))
    ]
    asked = []

    def claiming(name):
        asked.append(name)
        return bodies

    victim = body("victim", model={**model, "servedName": "m"})
    assert {key.name for key in rivals(victim, claiming)} == {"a", "b"}
    assert set(asked) == {"m", "llm/victim"}


def test_names_at_the_gateway():
    assert owned_models(service("a", "m")) == ("llm/a", "m")
    assert owned_models(service("a", "llm/a")) == ("llm/a",)


services = st.lists(
    st.builds(
        service,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["m", "n", "x/a", "y/b"]),
        st.integers(1, 3),
        st.sampled_from(["x", "y"]),
    ),
    unique_by=lambda s: s.key,
    max_size=6,
)


@given(services)
def test_every_name_has_at_most_one_owner(group):
    owners = {}
    for one in group:
        if stronger_claim(one.served_name, one, group) is None:
            for name in owned_models(one):
                assert owners.setdefault(name, one.key) == one.key


def test_claimants_parse_once_per_generation(monkeypatch):
    parsed = []
    monkeypatch.setattr("headrace_operator.claims.parse", lambda raw: parsed.append(raw) or parse(raw))
    claimants, bodies = Claimants(), [body("a"), body("b"), body("chat", slo={"tbt": "0s"})]
    mine = parse(bodies[0]).key
    for _ in range(3):
        assert [other.key.name for other in claimants.others(mine, bodies)] == ["b"]
    assert len(parsed) == 2
    bodies[1]["metadata"]["generation"] = 2
    list(claimants.others(mine, bodies))
    assert len(parsed) == 3


def test_host_paths_need_the_operators_leave():
    raw = body(podTemplate={"volumes": [{"name": "h", "hostPath": {"path": "/etc"}}]})
    with pytest.raises(RefusedError, match=r"spec\.podTemplate\.volumes: h is a hostPath"):
        check(parse(raw), [], SETTINGS)
