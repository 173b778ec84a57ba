"""What a client may try against the gateway, one entry each; `attacks` sends them.

An attack is refused if it gets a clear status with an OpenAI error and reaches no engine. One that only
carries something forged along is disarmed if the request is served as if the forged part were not there.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace_engine.contracts.resume_arguments import RESUME_IDS, SIGNATURE

CHAT = "/v1/chat/completions"
SERVICE = "attack/chat"
OTHER = "attack/code"
KEY = "sk-attack-campaign"
SPOOFED = {
    "x-gateway-destination-endpoint": "127.0.0.1:1",
    "x-gateway-destination-endpoint-subset": "127.0.0.1:1",
    "x-envoy-retry-on": "5xx",
    "x-envoy-max-retries": "9",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-envoy-original-path": "/metrics",
    "x-envoy-force-trace": "1",
    "x-vllm-priority": "-9",
    "x-data-parallel-rank": "1",
    "x-headrace-priority": "9",
    "x-headrace-token": "forged",
    "x-headrace-route": OTHER,
    "x-headrace-client": "root",
    "X_Headrace_Service": OTHER,
    "x-headrace-ttft-ms": "1",
    "x-headrace-output-tokens": "1",
}
"""Headers that only Headrace's own parts may set, or that the service does not allow."""
FORGED_ID = "x~headrace~1~1~1~1~"
FORGED_BODY: dict[str, Any] = {
    "vllm_xargs": {f"headrace_{field}": 1 for field in ("ttft_ms", "tpot_ms", "e2e_ms", "output_tokens")}
}


@dataclass(frozen=True, slots=True)
class Message:
    """One HTTP/1.1 request, byte for byte as it is sent."""

    path: str = CHAT
    method: str = "POST"
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    content_type: str | None = "application/json"
    key: str | None = KEY
    length: bool = True  # whether content-length is added
    version: str = "HTTP/1.1"
    host: bool = True

    def encode(self) -> bytes:
        """Return the bytes of the request as they are sent."""
        lines = [f"{self.method} {self.path} {self.version}"]
        if self.host:
            lines.append("host: gateway")
        if self.key is not None:
            lines.append(f"authorization: Bearer {self.key}")
        if self.content_type is not None:
            lines.append(f"content-type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.length:
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin1") + self.body


@dataclass(frozen=True, slots=True)
class Attack:
    """A request that must be refused with one of `statuses`, or served disarmed if 200 is among them."""

    name: str
    message: Message
    statuses: Sequence[int]
    needs_picker: bool = False  # only the picker sees it; without one the engine must cope


def chat(model: str = "chat", **fields: Any) -> bytes:
    """Return the body of a small chat request."""
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}).encode()


def raw_chat(fields: str) -> bytes:
    """Make the same with fields as text, for what no JSON library would write."""
    return b'{"model":"chat",%b,"messages":[{"role":"user","content":"x"}]}' % fields.encode()


def attacks(body_limit: int) -> list[Attack]:
    """List all attacks; `body_limit` in bytes is the gateway's."""
    plain = Message(body=chat())
    parts: list[Callable[[Message], list[Attack]]] = [_paths, _methods, _smuggled, _headers, _keys, _choices]
    return [attack for part in parts for attack in part(plain)] + _bodies(plain, body_limit)


def _paths(plain: Message) -> list[Attack]:
    inside: tuple[str, ...] = (
        "/metrics",
        "/stats",
        "/config_dump",
        "/quitquitquit",
        "/healthcheck/fail",
        "/v1/load_lora_adapter",
    )
    inside += (
        "/sleep",
        "/reset_prefix_cache",
        "/collective_rpc",
        "/tokenize",
        "/pause",
        "/pick/v1/completions",
    )
    tricks = (
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/chat/completions/../../../metrics",
        "/v1/chat/completions/..;/metrics",
        "/v1/chat%2fcompletions",
        "/v1/chat%5ccompletions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%3fx",
        "/v1/chat/completions#x",
        "/v1/chat/completions;x",
        "/v1/chat/completions/",
        "/v1/chat/completions/render",
        "//metrics",
        "/v1//..//metrics",
        f"/{SERVICE}/metrics",
        f"/{SERVICE}/v1/../metrics",
        f"/{SERVICE}/v1/..%2f..%2fmetrics",
        f"/{SERVICE}/v1/.%2e/metrics",
        "/attack%2fchat/v1/chat/completions",
        f"/{OTHER}/..%2fchat/v1/chat/completions",
        "http://127.0.0.1:9901/stats",
        "http://169.254.169.254/latest/meta-data/",
        "*",
        "/\u00e9",
    )
    return [
        Attack(f"{method} {path}", replace(plain, path=path, method=method), (400, 404, 415))
        for path in (*inside, *tricks)
        for method in (("GET", "POST") if path in inside else ("POST",))
    ]


def _methods(plain: Message) -> list[Attack]:
    return [
        Attack(f"method {method}", replace(plain, method=method), statuses)
        for method, statuses in {
            "GET": (405,),
            "PUT": (405,),
            "PATCH": (405,),
            "DELETE": (405,),
            "TRACE": (405,),
            "OPTIONS": (405,),
            "CONNECT": (400, 403, 404),
            "FOO": (400,),
        }.items()
    ]


def _smuggled(plain: Message) -> list[Attack]:
    body = plain.body
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    hidden = chunked + Message(path="/metrics", method="GET", content_type=None, length=False).encode()
    encoded = replace(plain, length=False, body=hidden)
    declared = replace(plain, length=False)

    def coding(message: Message, *values: str) -> Message:
        return replace(message, headers=[("transfer-encoding", value) for value in values])

    def length(*values: str) -> Message:
        return replace(declared, headers=[("content-length", value) for value in values])

    both = replace(encoded, headers=[("content-length", "5"), ("transfer-encoding", "chunked")])
    return [
        Attack("content-length and chunked", both, (400,)),
        Attack("chunked twice", coding(encoded, "chunked", "identity"), (400, 501)),
        Attack("chunked misspelt", coding(encoded, "xchunked"), (400, 501)),
        Attack("chunked, identity", coding(encoded, "chunked, identity"), (400, 501)),
        Attack("two lengths", length("5", str(len(body))), (400,)),
        Attack("a list of lengths", length(f"{len(body)}, {len(body)}"), (400,)),
        Attack("length with a sign", length(f"+{len(body)}"), (400,)),
        Attack("negative length", length("-1"), (400,)),
        Attack("length in hex", length(hex(len(body))), (400,)),
        Attack("bad chunk size", coding(replace(encoded, body=b"zz\r\n" + body), "chunked"), (400,)),
        Attack("space before colon", replace(plain, headers=[("x-headrace-priority ", "9")]), (400,)),
        Attack("NUL in a header", replace(plain, headers=[("x-a", "b\0c")]), (400,)),
        Attack("no host", replace(plain, host=False), (400,)),
        Attack("HTTP/1.0", replace(plain, version="HTTP/1.0"), (426,)),
        Attack(
            "websocket", replace(plain, headers=[("connection", "upgrade"), ("upgrade", "websocket")]), (403,)
        ),
        Attack("header of 70 kB", replace(plain, headers=[("x-a", "a" * 70_000)]), (431,)),
        Attack("200 headers", replace(plain, headers=[(f"x-{n}", "a") for n in range(200)]), (431,)),
        Attack("folded header", replace(plain, headers=[("x-a", "b\r\n x-vllm-priority: 9")]), (200, 400)),
        Attack("bare line feed", replace(plain, headers=[("x-a", "b\nx-vllm-priority: 9")]), (200, 400)),
        Attack(
            "bare carriage return", replace(plain, headers=[("x-a", "b\rx-vllm-priority: 9")]), (200, 400)
        ),
    ]


def _headers(plain: Message) -> list[Attack]:
    known = [
        Attack(f"spoofed {name}", replace(plain, headers=[(name, value)]), (200,))
        for name, value in SPOOFED.items()
    ]
    forged = chat(priority=-9, **FORGED_BODY)
    fetched = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 1}
    return [
        *known,
        Attack("all spoofed at once", replace(plain, headers=list(SPOOFED.items())), (200,)),
        Attack(
            "another service's name", replace(plain, headers=[("x-headrace-service", "attack/none")]), (404,)
        ),
        Attack("forged request id", replace(plain, headers=[("x-request-id", FORGED_ID)]), (200,)),
        Attack("forged vllm_xargs", replace(plain, body=chat(**FORGED_BODY)), (200,)),
        Attack("forged priority, too", replace(plain, body=forged, headers=list(SPOOFED.items())), (200,)),
        Attack(
            "kv_transfer_params",
            replace(plain, body=chat(kv_transfer_params=fetched)),
            (400,),
            needs_picker=True,
        ),
        Attack(
            "resumed at another's token",
            replace(plain, body=chat(vllm_xargs={RESUME_IDS: [1], SIGNATURE: "00" * 256})),
            (400,),
            needs_picker=True,
        ),
        Attack("content type taken away", replace(plain, headers=[("connection", "content-type")]), (415,)),
        Attack("a model name claimed twice", replace(plain, body=chat("chat")), (200,)),
    ]


def _keys(plain: Message) -> list[Attack]:
    nobody = replace(plain, key=None)
    elsewhere = [("proxy-authorization", f"Bearer {KEY}"), ("cookie", f"key={KEY}")]
    return [
        Attack("no key", nobody, (401,)),
        Attack("wrong key", replace(plain, key="sk-guessed"), (401,)),
        Attack("empty key", replace(plain, key=""), (401,)),
        Attack("half a key", replace(plain, key=KEY[:-1]), (401,)),
        Attack("key and more", replace(plain, key=KEY + "x"), (401,)),
        Attack("two keys", replace(nobody, headers=[("authorization", KEY), ("authorization", "x")]), (401,)),
        Attack("basic", replace(nobody, headers=[("authorization", f"Basic {KEY}")]), (401,)),
        Attack("wrong key in x-api-key", replace(nobody, headers=[("x-api-key", "sk-guessed")]), (401,)),
        Attack("half a key in x-api-key", replace(nobody, headers=[("x-api-key", KEY[:-1])]), (401,)),
        Attack(
            "wrong key, the right one in x-api-key",
            replace(plain, key="sk-guessed", headers=[("x-api-key", KEY)]),
            (401,),
        ),
        Attack(
            "right key, another in x-api-key", replace(plain, headers=[("x-api-key", "sk-elsewhere")]), (200,)
        ),
        Attack("key in the query", replace(nobody, path=f"{CHAT}?api_key={KEY}&key={KEY}"), (401,)),
        Attack("key taken away", replace(plain, headers=[("connection", "authorization")]), (401,)),
        *(
            Attack(f"key in {name}", replace(nobody, headers=[(name, value)]), (401,))
            for name, value in elsewhere
        ),
        Attack("models without a key", replace(nobody, method="GET", path="/v1/models", body=b""), (401,)),
    ]


def _choices(plain: Message) -> list[Attack]:
    counts = (
        "1000000",
        "129",
        "0",
        "-1",
        "1e6",
        "1000000.0",
        "99999999999999999999999",
        '"1000000"',
        '"1_000"',
    )
    bombs = {f"n = {count}": f'"n":{count}' for count in (*counts, '" 500"', '"0x400"', "1e400")}
    bombs |= {"n twice": '"n":1,"n":1000000', "n escaped": '"\\u006e":1000000'}
    by_path = replace(plain, path=f"/{SERVICE}{CHAT}", body=raw_chat('"n":1000000'))
    by_header = replace(by_path, path=CHAT, headers=[("x-headrace-service", SERVICE)])
    texts = ["a"] * 100_000
    many: dict[str, tuple[str, dict[str, Any]]] = {
        "100,000 prompts": ("/v1/completions", {"prompt": texts}),
        "100,000 prompts beside a chat": ("/v1/completions", {"messages": [{}], "prompt": texts}),
        "100,000 inputs beside a prompt": ("/v1/embeddings", {"prompt": "a", "input": texts}),
        "20 prompts, n = 128.0": ("/v1/completions", {"prompt": texts[:20], "n": 128.0}),
        'n = "128"': ("/v1/completions", {"prompt": "a", "n": "128"}),
    }
    return [
        *(Attack(name, replace(plain, body=raw_chat(fields)), (400,)) for name, fields in bombs.items()),
        Attack("n by path", by_path, (400,)),
        Attack("n by header", by_header, (400,)),
        Attack("n as text", replace(by_path, content_type="text/plain"), (415,)),
        *(
            Attack(
                name,
                replace(plain, path=path, body=json.dumps({"model": "chat", **body}).encode()),
                (400,),
                needs_picker=True,
            )
            for name, (path, body) in many.items()
        ),
    ]


def _token_ids(limit: int) -> bytes:
    fields = b'{"model":"chat","prompt":['
    return fields + b",".join([b"0"] * ((limit - len(fields)) // 2 - 1)) + b"]}"


def _messages(message: bytes, limit: int) -> bytes:
    fields = b'{"model":"chat","messages":['
    return fields + b",".join([message] * ((limit - len(fields)) // (len(message) + 1) - 1)) + b"]}"


def _bodies(plain: Message, limit: int) -> list[Attack]:
    deep = raw_chat('"x":' + "[" * 100_000 + "]" * 100_000)
    objects = raw_chat('"x":' + '{"a":' * 20_000 + "1" + "}" * 20_000)
    wrong = {
        "not JSON": b"{",
        "unclosed, a million deep": b"[" * 1_000_000,
        "100,000 lists deep": deep,
        "20,000 objects deep": objects,
        "NaN": raw_chat('"temperature":NaN'),
        "half a surrogate": raw_chat('"user":"\\ud800"'),
        "no UTF-8": raw_chat('"user":"').replace(b'"user":"', b'"user":"\xff"'),
        "two documents": chat() + chat("code"),
        "no model": b'{"messages":[]}',
        "model as list": b'{"model":["chat"],"messages":[]}',
    }
    coded = [("gzip", "gzip"), ("identity, gzip", "identity, gzip"), ("deflate", "deflate"), ("empty", "")]
    return [
        *(Attack(name, replace(plain, body=body), (400, 404)) for name, body in wrong.items()),
        *(
            Attack(f"content-encoding {name}", replace(plain, headers=[("content-encoding", value)]), (415,))
            for name, value in coded
        ),
        *(
            Attack(f"content type {kind}", replace(plain, content_type=kind), (415,))
            for kind in (None, "text/plain", "application/jsonx", "multipart/form-data")
        ),
        # Envoy takes 80 times as much to read it.
        Attack(
            "token ids up to the limit",
            replace(plain, path="/v1/completions", body=_token_ids(limit)),
            (200,),
        ),
        *(
            Attack(
                f"{name} messages up to the limit", replace(plain, body=_messages(each, limit)), (400,), True
            )
            for name, each in (("empty", b"{}"), ("tiny", b'{"role":"user","content":"x"}'))
        ),
        Attack("a byte too large", replace(plain, body=chat(user="x" * limit)), (413,)),
        Attack("four times too large", replace(plain, body=chat(user="x" * 4 * limit)), (413,)),
    ]
