"""Write the chart's dashboards: `python -m charts.dashboards [--check]`, from the repository's root.

With --check nothing is written and the exit status says whether the files are current.
"""

import sys
from pathlib import Path

from charts.dashboards import gateway, operator, panels, policy, pool, service
from charts.generated import settle

FOLDER = Path("charts/headrace/files/dashboards")
BOARDS = (service.BOARD, policy.BOARD, gateway.BOARD, operator.BOARD, pool.BOARD)


def main(check: bool) -> int:
    """Write or compare every file; returns the exit status."""
    wanted = {f"{board.name}.json": panels.build(board) for board in BOARDS}
    return settle(FOLDER, wanted, "*.json", check=check)


if __name__ == "__main__":
    sys.exit(main(check=sys.argv[1:] == ["--check"]))
