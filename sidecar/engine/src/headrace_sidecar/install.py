"""Puts the engine plugin into the shared folder, where vLLM finds it through PYTHONPATH.

Runs to its end as an init container. The plugin is the `headrace_engine` package of this container's own
environment, with as much of its distribution's metadata as entry point discovery needs. It is copied aside
and then renamed into place, so that an engine never imports half of it; what is already there and equal
stays as it is. Needs no privilege beyond writing the folder.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import headrace_engine

DISTRIBUTION = "headrace-engine"
METADATA_FILES = ("METADATA", "entry_points.txt")
ENTRY_POINT_GROUP = "vllm.general_plugins"
ASIDE = ".plugin."
READ_ONLY = 0o755  # for anyone but this user
SHARED = 0o1777  # the engine may run as any user; nobody else may replace its files


class InstallError(RuntimeError):
    """The plugin could not be put into place; the message says what to look at."""


def install_plugin(root: Path) -> str:
    """Make `root`/{plugin,control,stats} ready for an engine; returns the plugin's version."""
    try:
        _make_folder(root / "control", READ_ONLY)
        _make_folder(root / "stats", SHARED)
        return _put_plugin(root)
    except OSError as error:
        raise InstallError(f"HEADRACE_DIR={root}: cannot write it as uid {os.getuid()}: {error}") from error


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(exist_ok=True)
    if path.stat().st_mode & 0o7777 != mode:
        path.chmod(mode)


def _put_plugin(root: Path) -> str:
    """Replace `root`/plugin as a whole, unless it is equal already; returns its version."""
    for left_over in root.glob(f"{ASIDE}*"):
        shutil.rmtree(left_over)
    place = root / "plugin"
    aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=root))
    try:
        _copy_plugin(aside / "new")
        version = _verify(aside / "new")
        if place.exists() and _are_equal(place, aside / "new"):
            return version
        if place.exists():
            place.rename(aside / "old")
        (aside / "new").rename(place)
        return version
    finally:
        shutil.rmtree(aside)


def _copy_plugin(target: Path) -> None:
    package = Path(headrace_engine.__file__).parent
    distribution = metadata.distribution(DISTRIBUTION)
    shutil.copytree(package, target / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"headrace_engine-{distribution.version}.dist-info"
    info.mkdir()
    for name in METADATA_FILES:
        (info / name).write_text(distribution.read_text(name) or "")
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _are_equal(left: Path, right: Path) -> bool:
    """Tell whether two folders hold the same files with the same bytes."""
    names = [{path.relative_to(top) for path in top.rglob("*")} for top in (left, right)]
    files = [name for name in names[1] if (right / name).is_file()]
    return names[0] == names[1] and all(
        filecmp.cmp(left / name, right / name, shallow=False) for name in files
    )


def _verify(plugin: Path) -> str:
    """Ask an interpreter with `plugin` on its path which version it finds; raises InstallError if none."""
    for distribution in metadata.distributions(name=DISTRIBUTION, path=[str(plugin)]):
        for entry in distribution.entry_points.select(group=ENTRY_POINT_GROUP):
            module = plugin.joinpath(*entry.module.split(".")).with_suffix(".py")
            if module.is_file():
                return distribution.version
    raise InstallError(
        f"{DISTRIBUTION}: no entry point of {ENTRY_POINT_GROUP} leads to one of its modules: reinstall it"
    )
