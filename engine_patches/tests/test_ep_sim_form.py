"""Methods that only simulations choose: what they may be, and that none of them is what engines run."""

import pytest
from ep_adapter_trial import MARKS
from ep_engine_view import LIMITS
from ep_sim import Line, load, settings

from headrace_engine.contracts import ContractError, PerRequest, PolicyDocument, Slo
from headrace_engine.policies import parameters, registry
from headrace_engine.sim.form import MODULES, Form

SLO = Slo(ttft_ms=800, tpot_ms=30, e2e_ms=8000, per_request=PerRequest(1, 1, 1))
OTHERS = {
    "EconoServe": {"variant": "Full"},
    "AccelGen": {"ordering": False},
    "DoublingBudget": {"samePhase": True},
}


@pytest.mark.parametrize("policy", registry.policy_names())
def test_what_a_document_may_name_and_cannot_choose_are_methods_of_its_policy(policy):
    ignored = getattr(registry.POLICIES[policy], "IGNORED", ())
    chosen = parameters.schema(MODULES[policy].Methods)["properties"] if policy in MODULES else {}
    assert set(ignored) <= set(chosen)


@pytest.mark.parametrize(
    ("policy", "methods", "message"),
    [
        (
            "EconoServe",
            {"variant": "Half"},
            "methods.variant: 'Half' is not one of General, Full, SDO, SD, D",
        ),
        ("EconoServe", {"reservedPercent": 5}, "methods.reservedPercent: unknown parameter; known: variant"),
        ("EconoServe", {"bufferPercent": 101}, "methods.bufferPercent: 101 is outside 0 to 100"),
        ("AccelGen", {"skipping": 1}, "methods.skipping: expected true or false, got 1"),
        ("LARRY", {"alpha": 5}, "methods: LARRY has none to choose"),
    ],
)
def test_a_form_that_cannot_be_is_refused_by_name(policy, methods, message):
    with pytest.raises(ContractError) as refused:
        Form(PolicyDocument(policy), methods).build(LIMITS)
    assert message in str(refused.value)


def test_the_parameters_of_a_forms_document_are_checked_like_any():
    with pytest.raises(ContractError, match="reservedPercent: 51 is outside 0 to 50"):
        Form(PolicyDocument("EconoServe", {"reservedPercent": 51}), {"variant": "SD"}).build(LIMITS)


class TestSimulated:
    """On vLLM's own scheduler."""

    pytestmark = MARKS

    @pytest.mark.parametrize("policy", MODULES)
    def test_the_default_methods_are_what_engines_run(self, policy):
        from headrace_engine.sim.run import simulate

        document = PolicyDocument(policy, slo=SLO)
        runs = [
            simulate(load(40), settings(prefix_caching=True), Line(), each)
            for each in (document, Form(document, {}), Form(document, OTHERS[policy]))
        ]
        assert runs[0].decisions == runs[1].decisions != runs[2].decisions
