"""What answers for sidecars of pods that are not there: by the address that was asked."""

import json
import threading

import httpx
import pytest

from e2e.cluster import stand_in_sidecars

ANSWERS = {"127.0.0.1": {"/status": {"who": "a"}}, "127.0.0.2": {"/status": {"who": "b"}, "/traffic": {}}}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(ANSWERS))
    return path


@pytest.fixture
def port(file):
    server = stand_in_sidecars.serve(file, port=0)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def ask(address, port, path):
    return httpx.get(f"http://{address}:{port}{path}")


def test_each_address_has_answers_of_its_own(port):
    assert ask("127.0.0.1", port, "/status").json() == {"who": "a"}
    assert ask("127.0.0.2", port, "/status").json() == {"who": "b"}


@pytest.mark.parametrize(("address", "path"), [("127.0.0.1", "/traffic"), ("127.0.0.3", "/status")])
def test_what_the_file_does_not_have_is_not_found(port, address, path):
    assert ask(address, port, path).status_code == 404


def test_a_file_that_is_replaced_counts_at_once(port, file):
    file.write_text(json.dumps({"127.0.0.3": {"/status": {}}}))
    assert ask("127.0.0.3", port, "/status").status_code == 200
    assert ask("127.0.0.1", port, "/status").status_code == 404
