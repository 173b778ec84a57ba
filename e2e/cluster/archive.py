"""An image archive of one static program, written without any image tool."""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write(target: Path, tag: str, program: Path) -> None:
    """Write a docker archive whose only file, and entry point, is the program."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        content = program.read_bytes()
        _add(tar, "program", content, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/program"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_sha256(layer.getvalue())}"]},
        }
    ).encode()
    name = f"{_sha256(config)}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    fresh = target.with_suffix(".part")
    with tarfile.open(fresh, "w") as tar:
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, name, config)
        _add(tar, "manifest.json", manifest)
    fresh.rename(target)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
