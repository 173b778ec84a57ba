"""The relay's settings and key: errors that name what is wrong."""

from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.bench.continuation.signer import Signer as Gateway
from headrace_engine.contracts.resume_arguments import Resumption, arguments, read_resumption
from headrace_gateway.relay.__main__ import serve
from headrace_gateway.relay.signing import Signer
from headrace_gateway.settings import SettingsError, read_settings

KEY = {"HEADRACE_GATEWAY_KEY": "/etc/key.pem"}


def test_what_the_chart_sets_is_read():
    settings = read_settings({**KEY, "HEADRACE_MAX_BODY_BYTES": "1000"})
    assert (settings.gateway_key, settings.max_body_bytes) == ("/etc/key.pem", 1000)
    assert read_settings(KEY).max_body_bytes == 4 << 20


async def test_a_relay_without_a_key_does_not_start():
    with pytest.raises(SettingsError, match="HEADRACE_GATEWAY_KEY"):
        await serve(read_settings({}))


def test_a_size_that_is_none_is_named():
    with pytest.raises(SettingsError, match="HEADRACE_MAX_BODY_BYTES"):
        read_settings({**KEY, "HEADRACE_MAX_BODY_BYTES": "0"})


def test_the_key_is_the_one_that_lies_there_now(tmp_path):
    sign = Signer(tmp_path / "key.pem")
    with pytest.raises(OSError, match=r"key\.pem"):
        sign(b"")
    for gateway in (Gateway(), Gateway()):
        gateway.write(tmp_path / "key.pem")
        asked = Resumption((1, 2), 5.0, 6.0, 7.0)
        assert read_resumption(gateway.key("llm/chat"), arguments(sign, "llm/chat", asked)) == asked


def test_a_key_is_read_once_however_much_it_signs(tmp_path, monkeypatch):
    """Reading one stops the relay for longer than forty signatures do."""
    Gateway().write(tmp_path / "key.pem")
    read = Mock(wraps=serialization.load_pem_private_key)
    monkeypatch.setattr(serialization, "load_pem_private_key", read)
    sign = Signer(tmp_path / "key.pem")
    assert sign(b"one") != sign(b"two")
    assert read.call_count == 1


def test_what_is_no_rsa_key_signs_nothing(tmp_path):
    path = tmp_path / "key.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    with pytest.raises(ValueError, match="is no RSA key"):
        Signer(path)(b"")
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="PEM"):
        Signer(path)(b"")
