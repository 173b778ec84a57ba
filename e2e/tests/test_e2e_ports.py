"""Ports for servers of tests: nobody else gets them before the server listens."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import ports
from e2e.cluster.places import REPOSITORY


def test_ports_are_distinct_free_and_none_that_connections_get():
    given = [*ports.free(20), *ports.free(20)]
    assert len(set(given)) == 40
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(10_000 <= port < ephemeral for port in given)
    for port in given:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.fixture
def only(monkeypatch, tmp_path):
    """Leave one port to be given, by its number."""

    def leave(port):
        limits = tmp_path / "range"
        limits.write_text(f"{port + 1} 60999")
        monkeypatch.setattr(ports, "_FIRST", port)
        monkeypatch.setattr(ports, "_EPHEMERAL", limits)

    return leave


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_anybody_has_bound_is_not_given(only, kind):
    with socket.socket(type=kind) as bound:
        bound.bind(("127.0.0.1", 0))
        only(bound.getsockname()[1])
        with pytest.raises(OSError, match="not 1 free port"):
            ports.free(1)


def test_what_this_process_was_given_no_other_is(only):
    (mine,) = ports.free(1)
    only(mine)
    script = (
        "import sys; from pathlib import Path; from e2e import ports;"
        "ports._FIRST, ports._EPHEMERAL = int(sys.argv[1]), Path(sys.argv[2]);"
        "print(*ports.free(1))"
    )
    command = [sys.executable, "-c", script, str(mine), str(ports._EPHEMERAL)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "not 1 free port" in done.stderr
