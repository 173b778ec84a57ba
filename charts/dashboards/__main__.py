"""Write the chart's dashboards: `python -m charts.dashboards [--check]`, from the repository's root.

With --check nothing is written and the exit status says whether the files are current.
"""

import sys
from pathlib import Path

from charts.dashboards import gateway, operator, panels, policy, service

FOLDER = Path("charts/headrace/files/dashboards")
BOARDS = (service.BOARD, policy.BOARD, gateway.BOARD, operator.BOARD)


def main(check: bool) -> int:
    """Write or compare every file; returns the exit status."""
    wanted = {FOLDER / f"{board.name}.json": panels.build(board) for board in BOARDS}
    existing = {path: path.read_text() for path in FOLDER.glob("*.json")}
    stale = sorted(path for path in wanted | existing if wanted.get(path) != existing.get(path))
    for path in stale:
        print(f"{path} {'is stale: run `make generate`' if check else 'written'}")
    if check:
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in existing.keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(check=sys.argv[1:] == ["--check"]))
