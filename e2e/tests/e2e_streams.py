"""Streams through the gateway of the test cluster, and what its relays say of them."""

import asyncio
import json

from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE

FILL = """
import json, urllib.request
body = {"model": "chat", "prompt": 8 * ["Once"], "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
)
print(urllib.request.urlopen(request).read().decode())
"""


class Stream:
    """A greedy stream that can be read again; `under_way` once a part of the last answer has come."""

    def __init__(self, client, prompt, tokens):
        self._client = client
        self._body = {
            "model": "chat",
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self.under_way = asyncio.Event()

    def start(self):
        """A task that reads it; it is not under way yet."""
        self.under_way.clear()
        return asyncio.create_task(self.read())

    async def read(self):
        """Texts of all choices, and the usage."""
        async with self._client.stream("POST", "/v1/completions", json=self._body) as response:
            assert response.status_code == 200, await response.aread()
            told = [line async for line in self._lines(response) if line]
        assert told.pop() == "data: [DONE]"
        events = [json.loads(line.removeprefix("data: ")) for line in told]
        text = "".join(choice["text"] for event in events for choice in event["choices"])
        return text, events[-1]["usage"]["completion_tokens"]

    async def _lines(self, response):
        count = 0
        async for line in response.aiter_lines():
            assert '"error"' not in line, line
            yield line
            count += 1
            if count == 20:
                self.under_way.set()


def await_relays(stage):
    """Wait until every relay has the key without which no other engine goes on."""
    listing = ("-n", SYSTEM_NAMESPACE, "-c", "relay", "--", "ls", "/etc/headrace/gateway-key")

    def have_it():
        return all("private-key.pem" in stage.kube("exec", name, *listing) for name in _gateways(stage))

    stage.until(have_it, 180, "the kubelet has mounted the gateway's key")


async def fill(stage, pod):
    """Have an engine write as much at once as it may, for long; returns the task once requests wait there.

    Its result: the texts of eight greedy answers, all the same unless a token was lost, and their tokens.
    """
    filling = asyncio.create_task(asyncio.to_thread(_answers, stage, pod))
    await asyncio.to_thread(stage.until, lambda: stage.sidecar(pod, "/load")["waiting"], 60, "a full engine")
    return filling


def _answers(stage, pod):
    told = json.loads(
        stage.kube("exec", pod["metadata"]["name"], "-n", NAMESPACE, "--", "python3", "-c", FILL)
    )
    return [choice["text"] for choice in told["choices"]], told["usage"]["completion_tokens"]


def relayed(stage, what, label=""):
    """Streams of which all relays together say that they were `what`; with this label only."""
    pages = (
        stage.kube("get", "--raw", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/{name}:9090/proxy/metrics")
        for name in _gateways(stage)
    )
    wanted = f"headrace_relay_streams_{what}_total{{"
    return sum(
        float(line.rpartition(" ")[2])
        for page in pages
        for line in page.splitlines()
        if line.startswith(wanted) and label in line
    )


def _gateways(stage):
    pods = stage.kube.items(SYSTEM_NAMESPACE, "pods", "app.kubernetes.io/component=gateway")
    return [pod["metadata"]["name"] for pod in pods]
