"""Real Envoy: TLS and API keys from Secrets that change, the access log, trace context, and draining."""

import asyncio
import gc
import json
import ssl
import subprocess
import time
import warnings

import aiohttp
import pytest
from gw_rig import Rig, chat, until

from headrace_gateway.xds import api_keys
from headrace_gateway.xds.credentials import certificate_document

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # aiohttp leaves TLS to the collector
]

CHAT = "/v1/chat/completions"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def mount(folder, **entries):
    """Files as the kubelet mounts a Secret: links into a folder that is replaced whole."""
    folder.mkdir(exist_ok=True)
    data = folder / f"..{time.monotonic_ns()}"
    data.mkdir()
    for name, content in entries.items():
        (data / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data.new").symlink_to(data.name)
    (folder / "..data.new").rename(folder / "..data")


def certificate(name, scratch):
    """A self-signed certificate and its key, as a Secret has them."""
    key, crt = scratch / f"{name}.key", scratch / f"{name}.crt"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-keyout", key, "-out", crt], check=True, capture_output=True)
    return {"tls.key": key.read_bytes(), "tls.crt": crt.read_bytes()}


class SecuredRig(Rig):
    """An Envoy with TLS and API keys, both from folders that stand for mounted Secrets."""

    def __init__(self, folder):
        super().__init__(folder)
        self.url = self.url.replace("http:", "https:")
        self.tls, self.secret, self.file = folder / "tls", folder / "secret", folder / "run" / "api-keys.json"
        self.file.parent.mkdir()
        (folder / "certificate.yaml").write_text(json.dumps(certificate_document(str(self.tls))))
        self.settings = {"certificate": str(folder / "certificate.yaml"), "api_keys": str(self.file)}
        mount(self.tls, **certificate("first", folder))
        self.written = ""
        self.set_keys(team=b"sk-one")

    def set_keys(self, **entries):
        mount(self.secret, **entries)
        self.written = api_keys.update_file(self.secret, self.file, self.written)


RIG = SecuredRig


@pytest.fixture
async def session():
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=120),
        connector=aiohttp.TCPConnector(ssl=trusting),
        headers={"authorization": "Bearer sk-one"},
    ) as session:
        yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def ask(rig, session, key="Bearer sk-one", **headers):
    """Status, error code and headers of the answer to a chat request."""
    headers |= {"authorization": key}
    async with session.post(rig.url + CHAT, json=chat("chat"), headers=headers) as response:
        answer = await response.json()
        return response.status, answer.get("error", {}).get("code"), response.headers


def common_name(rig):
    """The name in the certificate that Envoy shows."""
    shown = ssl.get_server_certificate(("127.0.0.1", rig.port))
    subject = ["openssl", "x509", "-noout", "-subject"]
    return subprocess.run(subject, input=shown, capture_output=True, text=True, check=True).stdout.strip()[
        -5:
    ]


async def test_who_has_no_key_is_refused_and_who_has_one_is_known_by_name(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    for key in ("", "Bearer", "Bearer sk-on", "Bearer sk-one1", "Basic sk-one"):
        status, code, headers = await ask(rig, session, key)
        assert (status, code, headers["www-authenticate"]) == (401, "invalid_api_key", "Bearer"), key
    assert engine.served == []
    for key in ("Bearer sk-one", "sk-one"):
        assert (await ask(rig, session, key, **{"x-headrace-client": "root"}))[0] == 200
    assert (await ask(rig, session, "", **{"x-api-key": "sk-one"}))[0] == 200  # as Anthropic's clients do
    for each in engine.served:
        arrived = {name.lower(): value for name, value in each["headers"].items()}
        assert arrived["x-headrace-client"] == "team"
        assert arrived.keys().isdisjoint({"authorization", "x-api-key"})


async def test_whether_the_gateway_is_there_may_be_asked_without_a_key(rig, session):
    await rig.apply(session, {})
    async with session.get(rig.url + "/health", headers={"authorization": ""}) as response:
        assert response.status == 200


async def test_secrets_change_under_a_stream(rig, session):
    """New keys and a new certificate are in force soon; a stream that began before goes on to its end."""
    engine = await rig.engine(1, over=asyncio.Event())
    await rig.apply(session, {rig.config("chat"): [engine]})
    assert await asyncio.to_thread(common_name, rig) == "first"
    async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as response:
        assert response.status == 200
        mount(rig.tls, **certificate("other", rig.folder))
        rig.set_keys(team=b"sk-two\nsk-three")

        async def changed():
            return (await ask(rig, session))[0] == 401 and await asyncio.to_thread(
                common_name, rig
            ) == "other"

        await until(changed, "both are in force")
        for key in ("Bearer sk-two", "Bearer sk-three"):
            assert (await ask(rig, session, key))[0] == 200
        engine.over.set()
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")
    rig.set_keys(team=b"sk-one")

    async def back():
        return (await ask(rig, session))[0] == 200

    await until(back, "the first key is valid again")


async def test_plain_http_is_not_answered(rig, session):
    await rig.apply(session, {})
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_each_request_is_a_line_of_the_log_and_its_trace_goes_on(rig, session):
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    marker = f"req-{time.monotonic_ns()}"
    told = {"x-request-id": marker, "traceparent": TRACE, "tracestate": "a=b"}
    assert (await ask(rig, session, **told))[0] == 200
    url = f"{rig.url}/llm/chat{CHAT}?secret=1"
    async with session.post(
        url, json=chat("chat"), headers={"traceparent": TRACE, "authorization": "x"}
    ) as response:
        assert response.status == 401
    arrived = {name.lower(): value for name, value in engine.served[0]["headers"].items()}
    assert (arrived["traceparent"], arrived["tracestate"]) == (TRACE, "a=b")

    def lines():
        text = (rig.folder / "envoy.log").read_text().splitlines()
        found = [json.loads(line) for line in text if line.startswith("{") and TRACE in line]
        return found if len(found) >= 2 else None

    served, refused = await until(lines, "both are in the log")
    assert served["request_id"] == arrived["x-request-id"]
    assert (served["client"], served["service"], served["status"]) == ("team", "llm/chat", 200)
    assert served["engine"] == f"{engine.address}:{engine.port}"
    assert served["attempts"] == 1
    assert 0 <= served["first_byte_ms"] <= served["duration_ms"]
    assert served["request_bytes"] > 0 < served["response_bytes"]
    assert (refused["status"], refused["engine"]) == (401, None)
    assert refused["path"] == f"/llm/chat{CHAT}"
    assert "hello" not in (rig.folder / "envoy.log").read_text()


async def test_a_draining_gateway_asks_its_clients_to_connect_elsewhere(rig, session):
    """What the chart's preStop hook asks for, and that it can be taken back."""
    engine = await rig.engine(1, over=asyncio.Event())
    await rig.apply(session, {rig.config("chat"): [engine]})
    ready = f"http://127.0.0.1:{rig.ready_port}/ready"
    async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as stream:
        assert stream.status == 200
        async with session.post(f"http://127.0.0.1:{rig.admin_port}/healthcheck/fail") as response:
            assert response.status == 200
        async with session.get(ready) as response:
            assert response.status == 503
        status, _, headers = await ask(rig, session)
        assert (status, headers["connection"]) == (200, "close")
        engine.over.set()
        assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
    async with session.post(f"http://127.0.0.1:{rig.admin_port}/healthcheck/ok") as response:
        assert response.status == 200
    status, _, headers = await ask(rig, session)
    assert (status, headers.get("connection")) == (200, None)
