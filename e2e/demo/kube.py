"""kubectl and helm as functions: what a user would type, so that what works here works for a user.

Watching goes through kubectl too: one child process streams objects as they change, and ends with the block.
"""

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


class KubeError(Exception):
    """kubectl or helm refused; the message is theirs."""


class TooLateError(KubeError):
    """What was waited for did not come; the message says what came last."""


@dataclass(frozen=True, slots=True)
class Kube:
    """One cluster: how to start kubectl and helm, and the environment that names the kubeconfig."""

    kubectl: tuple[str, ...]
    helm_command: tuple[str, ...]
    environment: Mapping[str, str]

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run `kubectl ARGUMENTS`, give what it printed; raises KubeError."""
        return self._run([*self.kubectl, *arguments], stdin, timeout)

    def helm(self, *arguments: str, stdin: str | None = None, timeout: float = 300) -> str:
        """Run `helm ARGUMENTS`, give what it printed; raises KubeError."""
        return self._run([*self.helm_command, *arguments], stdin, timeout)

    def get(self, namespace: str, kind: str, name: str) -> Object:
        """Return one object; raises KubeError when there is none."""
        return json.loads(self("get", kind, name, "-n", namespace, "-o", "json"))  # type: ignore[no-any-return]

    def items(self, namespace: str, kind: str, selector: str = "") -> list[Object]:
        """Return objects of a namespace that the label selector takes."""
        chosen = ["-l", selector] if selector else []
        return json.loads(self("get", kind, "-n", namespace, "-o", "json", *chosen))["items"]  # type: ignore[no-any-return]

    def apply(self, manifest: Object) -> None:
        """Apply one object on the server's side."""
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, namespace: str, kind: str, name: str, change: Object) -> Object:
        """Merge patch; the object as it then is."""
        text = self(
            "patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(change), "-o", "json"
        )
        return json.loads(text)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def watch(self, namespace: str, kind: str, name: str) -> Iterator["Watch"]:
        """Follow one object's versions from now on."""
        command = [*self.kubectl, "get", kind, name, "-n", namespace, "--watch", "-o", "json"]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            watch = Watch(f"{kind} {namespace}/{name}")
            threading.Thread(target=watch.read, args=(process.stdout,), daemon=True).start()
            try:
                yield watch
            finally:
                process.terminate()

    def _run(self, command: list[str], stdin: str | None, timeout: float) -> str:
        done = subprocess.run(
            command,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubeError(f"`{' '.join(command)[-200:]}`: {(done.stderr or done.stdout).strip()}")
        return done.stdout


class Watch:
    """The versions of one object, each with the time at which kubectl printed it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._versions: queue.Queue[tuple[float, Object]] = queue.Queue()

    def read(self, stream: Any) -> None:
        """Split kubectl's stream of pretty-printed objects; a line `}` ends each."""
        lines: list[str] = []
        for line in stream:
            lines.append(line)
            if line == "}\n":
                self._versions.put((time.monotonic(), json.loads("".join(lines))))
                lines.clear()

    def until(self, holds: Callable[[Object], bool], timeout: float) -> float:
        """Wait for the first version that `holds`; returns when it came (monotonic), raises TooLateError."""
        return self.times((holds,), timeout)[0]

    def times(self, all_hold: Sequence[Callable[[Object], bool]], timeout: float) -> list[float]:
        """Wait until each of these held, one after another or at once; returns when, raises TooLateError."""
        deadline = time.monotonic() + timeout
        last: Object = {}
        found: list[float] = []
        while len(found) < len(all_hold):
            try:
                at, last = self._versions.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TooLateError(
                    f"{self._what}: not in {timeout:.0f} s; last status {last.get('status')}"
                ) from None
            while len(found) < len(all_hold) and all_hold[len(found)](last):
                found.append(at)
        return found


def replicas(manifest: Object) -> int:
    """Return how many replicas a service asks for; unset means 1."""
    return int(manifest["spec"].get("replicas", 1))


def condition(manifest: Object, kind: str) -> Object:
    """Return a condition of an object's status, `{}` when it has none."""
    found = (c for c in manifest.get("status", {}).get("conditions", ()) if c["type"] == kind)
    return next(found, {})


def is_current(manifest: Object, kind: str, status: str = "True") -> bool:
    """Tell whether a condition has this status, and is of the object's present generation."""
    found = condition(manifest, kind)
    generation = manifest["metadata"]["generation"]
    return found.get("status") == status and found.get("observedGeneration") == generation


def policy_applied(manifest: Object) -> bool:
    """Tell whether every replica has confirmed the policy of the object's present generation."""
    status = manifest.get("status", {})
    return is_current(manifest, "PolicyApplied") and status.get("policy", {}).get(
        "appliedReplicas"
    ) == replicas(manifest)
