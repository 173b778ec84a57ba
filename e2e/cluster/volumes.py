"""What engine pods mount: vLLM's packages and the models, made once, as volumes of a namespace.

The claims are `vllm-runtime` (mount it at /opt/vllm/site-packages) and `models` (a tiny Llama is at `tiny`
in it). Both are read-only and bound in advance, so pods need neither a hostPath nor a provisioner.
"""

import shutil
import sys
from pathlib import Path

from .places import REPOSITORY, cache
from .progress import run, step
from .sources import digest

_CAPACITY = "10Gi"  # asked of a claim, checked by nobody for a folder


def ensure_engine() -> Path:
    """Give the folder of vLLM's packages, installed from the lock when missing."""
    lock = REPOSITORY / "requirements" / "engine.txt"
    folder = cache() / "vllm" / digest([lock])
    if not folder.exists():
        with step("installing vLLM for the engine pods (6 GB, once)"):
            uv = str(cache() / "uv" / "bin" / "uv")
            # Pods mount it read-only, so bytecode must be there from the start.
            options = ["--no-deps", "--require-hashes", "--compile-bytecode", "--python", sys.executable]
            fresh = _fresh(folder)
            run([uv, "pip", "install", *options, "--target", str(fresh), "--requirement", str(lock)])
            fresh.rename(folder)
    return folder


def ensure_models() -> Path:
    """Give the folder of models, made when missing."""
    recipe = Path(__file__).with_name("model.py")
    folder = cache() / "models" / digest([recipe])
    if not folder.exists():
        with step("making the tiny model"):
            fresh = _fresh(folder)
            run([sys.executable, "-m", "e2e.cluster.model", str(fresh / "tiny")], cwd=REPOSITORY)
            fresh.rename(folder)
    return folder


def objects(namespace: str) -> list[dict[str, object]]:
    """Give the namespace, and a volume and a claim in it for each folder."""
    found: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    ]
    for claim, folder in (("vllm-runtime", ensure_engine()), ("models", ensure_models())):
        volume = f"{namespace}-{claim}"
        common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": {
                    **common,
                    "capacity": {"storage": _CAPACITY},
                    "hostPath": {"path": str(folder), "type": "Directory"},
                    "claimRef": {"namespace": namespace, "name": claim},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            }
        )
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": namespace},
                "spec": {
                    **common,
                    "volumeName": volume,
                    "resources": {"requests": {"storage": _CAPACITY}},
                },
            }
        )
    return found


def _fresh(folder: Path) -> Path:
    """Give an empty folder beside the wanted one: the name appears only when the content is whole."""
    fresh = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fresh.chmod(0o755)  # engines run as any user
    return fresh
