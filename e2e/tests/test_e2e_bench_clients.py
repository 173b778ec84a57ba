"""The clients' campaign: what it sends, what it calls wrong, and the real gateway and engine under it."""

import json
import shutil
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import httpx2
import numpy as np
import openai
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.clients import (
    fields as clients_fields,
)
from e2e.bench.clients import (
    requests as clients_requests,
)
from e2e.bench.clients import (
    study as clients,
)
from e2e.bench.clients import (
    values as clients_values,
)
from e2e.bench.clients.requests import Request
from e2e.bench.clients.study import Outcome, Report, find_fault
from e2e.bench.real_engine import pod as engine_pod
from headrace_engine.policies import registry

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's and torch's own

ASKED = httpx2.Request("POST", "http://gateway/v1/completions")
WELL = {"message": "no", "type": "invalid_request_error", "param": None, "code": "x"}


def refused(body):
    response = httpx2.Response(400, request=ASKED)
    return openai.BadRequestError("refused", response=response, body=body)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (refused(WELL), ""),
        (refused(WELL | {"code": None}), ""),
        (refused(WELL | {"code": 400}), ""),  # the client itself reads it as a string
        (refused("<html>"), "no error object"),
        (refused(None), "no error object"),
        (refused([WELL]), "no error object"),
        (refused({"detail": "Not Found"}), "no message"),
        (refused(WELL | {"message": {"a": 1}}), "no message"),
        (refused(WELL | {"param": ["n"]}), "param: no string"),
        (openai.APITimeoutError(ASKED), "no answer"),
        (openai.APIConnectionError(request=ASKED), "the connection broke"),
    ],
)
def test_an_error_must_be_one_that_the_client_reads(error, wrong):
    assert find_fault(error).startswith(wrong)
    assert bool(find_fault(error)) is bool(wrong)


def test_a_stream_that_breaks_is_told_from_an_error_that_nobody_can_read():
    asked = Request("/completions", {})
    outcomes = [Outcome(asked, 200), Outcome(asked, 200, "broke"), Outcome(asked, 0, "no answer")]
    figures = Report([*outcomes, Outcome(asked, 400), Outcome(asked, 500)], deaths=["x"]).figures()
    assert figures["requests"] == 5
    assert figures["engine_deaths"] == 1
    assert (figures["broken_streams"], figures["non_openai_errors"]) == (1, 1)
    assert (figures["answered"], figures["refused"], figures["engine_failures"]) == (2, 1, 1)


class Inner(typing_extensions.TypedDict, total=False):
    kind: typing_extensions.Required[typing_extensions.Literal["a", "b"]]
    more: "list[Inner]"


class Outer(typing_extensions.TypedDict):
    inner: Inner
    count: int | None


@given(clients_values.values(Outer))
def test_values_are_of_their_type_and_json(value):
    assert value.keys() == {"inner", "count"}
    assert value["inner"]["kind"] in {"a", "b"}
    assert value["count"] is None or isinstance(value["count"], int)
    assert json.loads(json.dumps(value)) == value


def test_a_weight_is_how_often_a_choice_is_made():
    choices = clients_values.weighted((9, st.just("usual")), (1, st.just("seldom")))
    made = [clients_values.drawn(choices, seed) for seed in range(200)]
    assert 150 < made.count("usual") < 200


@pytest.mark.vllm
@pytest.mark.timeout(240)
def test_every_field_is_sent_and_the_same_seed_sends_the_same():
    made = clients_requests.made(150, seed=5)
    assert made == clients_requests.made(150, seed=5)
    sent = {(request.path, name) for request in made for name in request.body}
    for endpoint in clients_fields.ENDPOINTS:
        names = (
            clients_fields.openai_fields(endpoint).keys() | clients_fields.vllm_fields(endpoint.model).keys()
        )
        assert {name for name in names if (endpoint.path, name) not in sent} == set()
    json.dumps([request.body for request in made])


def test_the_pod_is_as_the_image_says_and_has_no_compiler(tmp_path):
    said = engine_pod.image_environment("FROM x\nENV A=1 B='2 3'\nRUN y\nENV C=d\n")
    assert said == {"A": "1", "B": "2 3", "C": "d"}
    compilers = ("gcc", "cc", "g++", "x86_64-linux-gnu-gcc-12", "clang-15", "c++")
    assert all(engine_pod.COMPILER.fullmatch(name) for name in compilers)
    engine_pod.without_compilers(tmp_path / "bin")
    there = {each.name for each in (tmp_path / "bin").iterdir()}
    assert "sh" in there
    assert shutil.which("gcc", path=str(tmp_path / "bin")) is None
    assert not any(engine_pod.COMPILER.fullmatch(name) for name in there)


@pytest.fixture
def seeds_on_cpu(monkeypatch):
    monkeypatch.syspath_prepend(str(engine_pod.PLUGINS))
    import seeds_on_cpu

    return seeds_on_cpu


@pytest.mark.vllm
def test_random_numbers_of_a_thrown_away_token_are_not_used_up(seeds_on_cpu):
    import torch

    unused, used = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    runner = types.SimpleNamespace(
        input_batch=types.SimpleNamespace(num_reqs=2, generators={0: unused, 1: used}),
        discard_request_mask=types.SimpleNamespace(np=np.array([True, False, True])),
    )

    def sample(runner):
        return [torch.rand(1, generator=each).item() for each in runner.input_batch.generators.values()]

    first, second = seeds_on_cpu.keeping_unused(sample)(runner)
    assert first == second == torch.rand(1, generator=unused).item()
    assert torch.rand(1, generator=used).item() != first

    def bookkeeping(runner):
        return dict(runner.input_batch.generators)

    assert seeds_on_cpu.without_offsets(bookkeeping)(runner) == {}
    assert runner.input_batch.generators == {0: unused, 1: used}


@pytest.mark.vllm
def test_the_images_plugin_is_found_and_still_fits_vllm(seeds_on_cpu):
    found = {each.name for each in metadata.entry_points(group="vllm.general_plugins")}
    assert "seeds_on_cpu" in found
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    assert callable(CPUModelRunner._sample)
    assert callable(CPUModelRunner._bookkeeping_sync)


@pytest.fixture(scope="module")
def pod(tmp_path_factory):
    with clients.start_pod(tmp_path_factory.mktemp("clients")) as pod:
        yield pod


@pytest.mark.vllm
@pytest.mark.envoy
@pytest.mark.timeout(600)
async def test_no_request_ends_the_engine_and_each_refusal_can_be_read(pod):
    requests = clients_requests.made(80, seed=7)
    report = await clients.campaign(pod, requests, print)
    assert report.deaths == []
    assert report.held == []
    wrong = [outcome for outcome in report.outcomes if outcome.wrong]
    broken = {outcome.request.path for outcome in wrong if outcome.status == 200}
    assert broken <= {"/responses"}  # vLLM looks at some of their fields when it has sent 200
    assert [(each.words, str(each.request)) for each in wrong if each.status != 200] == []
    assert report.failed_steps == 0
    assert report.figures()["answered"] > 30
    deadly = [outcome.status for outcome in report.outcomes if outcome.request in clients_requests.DEADLY]
    assert deadly == [200] * 4 * len(registry.policy_names())


@pytest.mark.vllm
@pytest.mark.envoy
@pytest.mark.timeout(600)
def test_vllms_benchmark_client_measures_the_gateway(pod, tmp_path):
    vllm = Path(sys.executable).with_name("vllm")
    told = subprocess.run(
        [
            *(vllm, "bench", "serve", "--base-url", pod.gateway, "--model", "chat"),
            *("--tokenizer", pod.folder / "model", "--dataset-name", "random", "--num-prompts", "5"),
            *("--random-input-len", "20", "--random-output-len", "4"),
            *("--save-result", "--result-dir", tmp_path, "--result-filename", "figures.json"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["completed"], figures["failed"]) == (5, 0)
    assert figures["mean_ttft_ms"] > 0
