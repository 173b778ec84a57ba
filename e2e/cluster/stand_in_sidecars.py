"""Stand-ins for the sidecars of pods that kwok says are there: they answer at those pods' addresses.

`python -m e2e.cluster.stand_in_sidecars FILE`, in the cluster's network, is what answers. FILE has, by a
pod's address, what each path answers: `{"10.245.0.7": {"/status": {…}, "/traffic": {…}}}`. It is read at
every question, so replace it whole.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import gpu_nodes
from .cluster import Cluster
from .progress import detach, run
from .remains import pids_of

PORT = 9400


def start(cluster: Cluster, file: Path) -> None:
    """Have the addresses of all pods on kwok's nodes answer as `file` says, until the cluster ends."""
    run([*cluster.network(), "ip", "route", "replace", "local", gpu_nodes.PODS, "dev", "lo"])
    command = (sys.executable, "-m", "e2e.cluster.stand_in_sidecars", str(file))
    if not pids_of(command):
        with (cluster.state / "logs" / "stand-in-sidecars.log").open("ab") as log:
            detach([*cluster.enter(), *command], log)


def serve(file: Path, host: str = "", port: int = PORT) -> ThreadingHTTPServer:
    """Make the server that answers what `file` has for the address that was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = self.connection.getsockname()[0]
            answer = json.loads(file.read_text()).get(address, {}).get(self.path)
            body = json.dumps(answer).encode()
            self.send_response(200 if answer is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet: the operator asks several times a second."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Answer from the named file, until killed."""
    serve(Path(sys.argv[1])).serve_forever()


if __name__ == "__main__":
    main()
