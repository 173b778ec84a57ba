"""From `kubectl apply` to tokens: two services behind one address, found by model, path and header."""

import json

import anthropic
import httpx
import pytest

from e2e.bench.clients import requests as clients_requests
from e2e.demo import services
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


def text(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


def test_a_service_is_found_by_model_path_and_header(stage):
    by_model = stage.complete("chat")
    assert by_model.json()["model"] == "chat"
    expected = text(by_model)
    assert text(stage.complete(f"{NAMESPACE}/chat")) == expected
    assert text(stage.complete("chat", path=f"/{NAMESPACE}/chat/v1/completions")) == expected
    assert text(stage.complete("chat", headers={"x-headrace-service": f"{NAMESPACE}/chat"})) == expected


def test_each_name_leads_to_its_own_service(stage):
    assert [stage.complete(name).json()["model"] for name in ("chat", "code")] == ["chat", "code"]


def test_models_lists_both_services(stage):
    listed = httpx.get(f"{stage.url}/v1/models", timeout=60).json()
    assert {"chat", "code"} <= {model["id"] for model in listed["data"]}


def test_tokens_stream_as_they_are_made(stage):
    body = {"model": "code", "prompt": "def f", "max_tokens": 30, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{stage.url}/v1/completions", json=body, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    made = [event for event in events[:-1] if json.loads(event)["choices"]]
    assert len(made) > 2  # tokens that wait for a busy client come together


def test_anthropics_client_gets_messages(stage):
    said = [{"role": "user", "content": "hi"}]
    with anthropic.Anthropic(base_url=stage.url, api_key="none") as client:
        made = client.messages.create(model="chat", messages=said, max_tokens=4)
        with client.messages.stream(model="chat", messages=said, max_tokens=4) as stream:
            streamed = stream.get_final_message()
        counted = client.messages.count_tokens(model="chat", messages=said)
    for each in (made, streamed):
        assert (each.usage.input_tokens, each.usage.output_tokens) == (counted.input_tokens, 4)


def test_the_demos_image_survives_what_has_ended_its_engines(stage):
    before = services.pod_lives(stage.kube)
    for request in clients_requests.DEADLY:
        response = httpx.post(f"{stage.url}/v1{request.path}", json=request.body, timeout=120)
        assert response.status_code == 200, response.text
    assert services.restarted(before, services.pod_lives(stage.kube)) == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/completions", {"model": "nobody", "prompt": "x"}, 404),
        ("POST", "/v1/completions", {"prompt": "x"}, 400),
        ("GET", "/metrics", None, 404),
        ("POST", "/v1/load_lora_adapter", {"model": "chat"}, 404),
        ("GET", f"/{NAMESPACE}/chat/metrics", None, 404),
    ],
)
def test_what_is_not_offered_is_refused_in_openai_form(stage, method, path, body, status):
    response = httpx.request(method, stage.url + path, json=body, timeout=60)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_the_status_tells_what_a_user_asks(stage):
    chat = stage.service("chat")
    assert chat["status"]["policy"]["name"] == "FCFS"
    assert chat["status"]["readyReplicas"] == 2
    assert chat["status"]["url"].startswith("http")
    shown = stage.kube("get", "llms", "-n", NAMESPACE)
    assert "chat" in shown
    assert "FCFS" in shown
