"""Every contract has one golden document; what is read and written here must stay what it says.

The other parts test their own ends against the same files.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import (
    AppliedPolicy,
    ContractError,
    EngineInfo,
    EngineStatus,
    GatewayConfig,
    LoadReport,
    PerRequest,
    PolicyDocument,
    Prediction,
    PredictionState,
    SalParameters,
    Slice,
    Slo,
    StepBudget,
    decode,
    dumps,
    encode,
    loads,
)
from headrace_engine.contracts.resume_arguments import ResumeKey
from headrace_engine.contracts.traffic import Traffic, TrafficWindow
from headrace_engine.contracts.turn_group import TurnGroup

GOLDEN = Path(__file__).parent / "golden"

DOCUMENTS = {
    "policy_document": PolicyDocument(
        policy="LARRY",
        parameters={"alpha": 25},
        step_budget=StepBudget(mode="Fixed", tokens=1024),
        slo=Slo(ttft_ms=500, tpot_ms=100, e2e_scale_percent=200, per_request=PerRequest(ttft_ms=200)),
        prediction=Prediction("Learned", quantile_percent=75),
        slice=Slice(tokens=512, patience_ms=20_000, hand_back=True),
    ).sealed(),
    "gateway_config": GatewayConfig(
        namespace="llm",
        name="chat",
        models=("chat", "llm/chat"),
        served_name="chat",
        balancer="SAL",
        sal=SalParameters(kv_release="Gross"),
        max_queue_ms=30_000,
        slo=Slo(ttft_ms=500, e2e_ms=30_000),
        port=8000,
        sidecar_port=9400,
        prefix_caching=False,
        allowed_clients=("search", "support"),
        requests_per_minute=600,
        requests_per_minute_per_client=60,
        resume=True,
        drain="Move",
        rebalance=True,
    ),
    "load_report": LoadReport(
        boot="00c0ffee00c0ffee",
        time=1_795_000_000.25,
        serving=True,
        running=3,
        waiting=2,
        waiting_prefill_tokens=900,
        unfinished_prefill_tokens=128,
        waiting_kv_blocks=57,
        free_kv_blocks=400,
        total_kv_blocks=512,
        block_size=16,
        arrivals=40,
        arrived_tokens=12_000,
        finishes=35,
        prefill_tokens_per_second=8123.5,
        step_seconds=0.0125,
        mean_prompt_tokens=300.0,
        mean_output_tokens=87.5,
        max_model_len=8192,
    ),
    "engine_status": EngineStatus(
        runtime_version="0.1.0",
        policies=("FCFS", "LARRY"),
        policy_schema=2,
        engine=EngineInfo(
            state="Starting",
            reason="the engine's scheduler has not reported yet",
            vllm_version="0.32.0",
            boot="00c0ffee00c0ffee",
            max_model_len=8192,
            phase="Compiling",
            phase_since=1_795_000_000.25,
        ),
        policy=AppliedPolicy(
            name="LARRY",
            applied_hash="0123456789abcdef",
            rejected_hash="fedcba9876543210",
            error="PolicyDocument.parameters.alpha: at most 100000",
            fallback_steps=2,
            disabled=False,
        ),
        prediction=PredictionState(predictor="Quantile", learned=12, failures=1),
        turn_group="00112233445566aa",
        without_turns=True,
    ),
    "resume_key": ResumeKey(service="llm/chat", modulus="c0ffee" * 86),
    "traffic": Traffic(
        windows=(
            TrafficWindow(1_795_000_000, (2, *[0] * 39), 900, 300, 450_000.0, 50_000.0, 1, 12.5),
            TrafficWindow(1_795_000_060, (*[0] * 39, 1), 1024, 1, 1_048_576.0, 1.0, 1, 0.25),
        )
    ),
    "turn_group": TurnGroup(host="10.0.3.7", port=9500, token="c0ffee00" * 8, order="DoublingBudget"),
}
names = pytest.mark.parametrize("name", DOCUMENTS)


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


@names
def test_the_golden_document_is_read(name):
    assert decode(type(DOCUMENTS[name]), golden(name)) == DOCUMENTS[name]


@names
def test_the_golden_document_is_written(name):
    assert json.loads(dumps(DOCUMENTS[name])) == golden(name)


@names
def test_a_writer_may_add_keys(name):
    assert decode(type(DOCUMENTS[name]), golden(name) | {"addedLater": [1]}) == DOCUMENTS[name]


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - {"gateway_config"}))  # a kind has its API version
def test_a_newer_schema_is_refused(name):
    own = DOCUMENTS[name].schema
    known = f"schema: version {own + 1} is not understood, this reader knows up to {own}"
    with pytest.raises(ContractError, match=known):
        decode(type(DOCUMENTS[name]), golden(name) | {"schema": own + 1})


@names
def test_a_missing_key_is_named(name):
    document = golden(name)
    required = next(
        key
        for key in document
        if key in {"policy", "namespace", "boot", "runtimeVersion", "modulus", "token", "windows"}
    )
    del document[required]
    with pytest.raises(ContractError, match=rf"\.{required}: missing"):
        decode(type(DOCUMENTS[name]), document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": 3}, r"PolicyDocument\.policy: expected str, got the number 3"),
        ({"slo": {"ttftMs": "500"}}, r"PolicyDocument\.slo\.ttftMs: expected int, got a string"),
        ({"stepBudget": {"mode": "Endless"}}, r"PolicyDocument\.stepBudget\.mode: 'Endless' is not one of"),
        ({"parameters": [1]}, r"PolicyDocument\.parameters: expected dict"),
        ({"slo": {"tpotMs": True}}, r"PolicyDocument\.slo\.tpotMs: expected int, got a boolean"),
    ],
)
def test_a_wrong_value_is_named(change, message):
    with pytest.raises(ContractError, match=message):
        decode(PolicyDocument, golden("policy_document") | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"port": 0}, "port: 0 is none"),
        ({"port": 65_536}, "port: 65536 is none"),
        ({"token": "secret"}, "token: is not in hexadecimal digits"),
        ({"token": "c0ffee"}, "token: has fewer than 16 bytes"),
        ({"order": "RoundRobin"}, "order: 'RoundRobin' is not one of FairShare, DoublingBudget"),
    ],
)
def test_a_group_that_no_server_can_have_is_refused(change, message):
    with pytest.raises(ContractError, match=message):
        decode(TurnGroup, golden("turn_group") | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrivals": [2, -1, *[0] * 38]}, "arrivals: -1 is no sum"),
        ({"arrivals": [2]}, "arrivals: has 1 numbers and not 40"),
        ({"promptSquares": float("inf")}, "prompt_squares: inf is no sum"),
        ({"e2eSeconds": float("nan")}, "e2e_seconds: nan is no sum"),
        ({"met": 3}, "met: 3 of 2 requests"),
        ({"start": 10**400}, "start: 10+ is no sum"),
        ({"arrivals": [10**400, *[0] * 39]}, "arrivals: 10+ is no sum"),
    ],
)
def test_traffic_that_cannot_be_is_refused(change, message):
    windows = [golden("traffic")["windows"][0] | change]
    with pytest.raises(ContractError, match=message):
        decode(Traffic, golden("traffic") | {"windows": windows})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_what_is_no_document_is_refused(text):
    with pytest.raises(ContractError, match="PolicyDocument: "):
        loads(PolicyDocument, text)


def test_the_hash_is_of_the_content_alone():
    document = DOCUMENTS["policy_document"]
    assert document.hash == golden("policy_document")["hash"]
    assert decode(PolicyDocument, golden("policy_document") | {"hash": "x"}).content_hash() == document.hash
    assert PolicyDocument(policy="FCFS").sealed().hash != document.hash


counts = st.integers(0, 2**53)
times = st.floats(0, 1e12)


@given(
    st.builds(
        LoadReport,
        boot=st.text(),
        serving=st.booleans(),
        time=times,
        prefill_tokens_per_second=times,
        step_seconds=times,
        mean_prompt_tokens=times,
        mean_output_tokens=times,
        **dict.fromkeys(
            (
                *("running", "waiting", "waiting_prefill_tokens", "unfinished_prefill_tokens"),
                *("waiting_kv_blocks", "free_kv_blocks", "total_kv_blocks", "block_size"),
                *("arrivals", "arrived_tokens", "finishes"),
            ),
            counts,
        ),
    )
)
def test_any_load_report_survives_the_wire(report):
    assert loads(LoadReport, dumps(report)) == report


def test_absent_and_null_are_one():
    assert encode(Slo(ttft_ms=5)) == {"ttftMs": 5}
    assert decode(Slo, {"ttftMs": 5, "tpotMs": None}) == Slo(ttft_ms=5)
