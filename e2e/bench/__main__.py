"""Every study of the benchmarks, one after another: `python -m e2e.bench [STUDY ...]`.

Simulated studies store each run they finish, so that an interrupted one goes on where it was. Results go to
`e2e/bench/results`. With `--quick` those that take long run tiny versions of themselves, whose results are
thrown away, and the others are left out. `switch`, `pool_moves`, `upgrade`, `faults`, `outages` and `gateway`
start what they need: the local cluster, an API server, and Envoy.
"""

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from e2e.bench.runs import pool
from e2e.bench.runs.command_line import Options, make_parser, read_options
from headrace_operator.simulate import command

STUDIES = (
    "validation",
    "blind",
    "gpu_runs",
    "cost_models",
    "larry",
    "sal",
    "prefix",
    "prefix_policies",
    "econoserve",
    "accelgen",
    "doubling_budget",
    "scls",
    "slices",
    "rebalance",
    "slices_across_engines",
    "sharing",
    "placement",
    "clusters",
    "traffic_sums",
    "replacement",
    "step_budget",
    "policy_soak",
    "live_fit",
    "sim_speed",
    "plan_cost",
    "host_time",
    "prediction",
    "operator_scale",
    "gateway",
    "attacks",
    "mutations",
    "clients",
    "continuation",
    "slices_live",
    "turns",
    "pool_moves",
    "follow",
    "switch",
    "upgrade",
    "outages",
    "faults",
    "live",
    "invariants",  # reads results of those before
)
BY_NAME = (
    *("cost_models", "econoserve", "accelgen", "doubling_budget", "scls", "slices", "rebalance"),
    *("slices_across_engines", "sharing", "placement", "clusters", "traffic_sums", "replacement"),
    *("step_budget", "policy_soak", "prediction", "operator_scale", "attacks", "mutations", "clients"),
    *("continuation", "slices_live", "turns", "pool_moves", "follow", "upgrade", "outages", "faults", "live"),
    "invariants",
)
"""Run only when named: with them all would take more than an hour; `cost_models` changes the catalogue."""
POOLED = {
    "larry": "larry.study",
    "sal": "sal.study",
    "prefix": "prefix",
    "prefix_policies": "prefix_policies",
    "econoserve": "econoserve.study",
    "accelgen": "accelgen.study",
    "doubling_budget": "doubling_budget.study",
    "scls": "scls.study",
    "slices": "slices",
    "rebalance": "rebalance",
    "slices_across_engines": "slices_across_engines",
    "sharing": "sharing.study",
    "placement": "placement.study",
    "clusters": "clusters.study",
    "traffic_sums": "traffic_sums",
    "replacement": "replacement.study",
    "step_budget": "step_budget",
}
"""Studies whose module has `run(options)` and that share one pool; the others have a process each."""


def main() -> int:
    """Run them; the exit status says whether all succeeded."""
    if sys.argv[1:2] == ["predict"]:
        return command.main(sys.argv[1:])
    parser = make_parser(__doc__)
    told = f"of {', '.join(STUDIES)}; by default all but {', '.join(BY_NAME)}"
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=told)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.studies) - set(STUDIES))
    if unknown:
        parser.error(f"there is no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    options = read_options(arguments)
    chosen = arguments.studies or [name for name in STUDIES if options.quick or name not in BY_NAME]
    wanted = [name for name in STUDIES if name in chosen and (name in POOLED or not options.quick)]
    os.environ.update(pool.ENVIRONMENT)  # for what the studies start themselves
    try:
        failed = run(wanted, options, Console(stderr=True))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        if options.quick:
            shutil.rmtree(options.folder, ignore_errors=True)
    return 1 if failed else 0


def run(studies: Sequence[str], options: Options, console: Console) -> list[str]:
    """Run these; a study that fails does not keep the next from running. Returns the names of the failed."""
    failed = []
    for number, name in enumerate(studies, 1):
        started = time.monotonic()
        console.print(f"[bold]{number}/{len(studies)} {name}[/bold]")
        try:
            if name in POOLED:
                importlib.import_module(f"e2e.bench.{POOLED[name]}").run(options)
            else:
                subprocess.run([sys.executable, "-m", f"e2e.bench.{name}"], check=True)
        except Exception as error:
            console.print(f"✗ {name}: {type(error).__name__}: {error}", style="red", markup=False)
            failed.append(name)
        else:
            console.print(f"✓ {name} in {time.monotonic() - started:.0f} s", style="green")
    return failed


if __name__ == "__main__":
    sys.exit(main())
