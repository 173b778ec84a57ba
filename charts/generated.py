"""Files of the chart that are made from a source: written, or compared with what is there."""

from collections.abc import Mapping
from pathlib import Path


def settle(folder: Path, wanted: Mapping[str, str], pattern: str, *, check: bool) -> int:
    """Make the files of `folder` that match `pattern` those of `wanted`, name to text.

    With `check` nothing is written. Returns the exit status: 1 if `check` found a difference.
    """
    existing = {path.name: path.read_text() for path in folder.glob(pattern)}
    stale = sorted(name for name in wanted.keys() | existing.keys() if wanted.get(name) != existing.get(name))
    for name in stale:
        print(f"{folder / name} {'is stale: run `make generate`' if check else 'written'}")
    if check:
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in existing.keys() - wanted.keys():
        (folder / name).unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text)
    return 0
