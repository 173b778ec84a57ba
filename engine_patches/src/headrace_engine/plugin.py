"""Entry point of `vllm.general_plugins`: gives vLLM's engines a scheduler with policies.

vLLM calls `register` in each of its processes. Only what `SchedulerConfig.get_scheduler_cls` returns is
changed, and only the engine process asks for it; an explicit `--scheduler-cls` wins. An exception here would
end vLLM, so none leaves: the engine then runs stock, and says why in stats/rank0.json where it can.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from headrace_engine.adapter import startup_phases, termination_message
from headrace_engine.control import paths

log = logging.getLogger("vllm.headrace")


def register() -> None:
    """Take part in this vLLM process, if there is a folder shared with a sidecar. Idempotent."""
    root = paths.shared_folder()
    try:
        if (root / "stats").is_dir():  # raises where the folder may not be looked into
            _register(root)
        else:
            log.info("headrace: no folder %s/stats, so no policies", root)
    except Exception:
        log.exception("headrace: could not register; vLLM's own scheduler runs")


def _register(root: Path) -> None:
    from vllm.config.scheduler import SchedulerConfig  # noqa: PLC0415 not before vLLM has set itself up

    stock = SchedulerConfig.get_scheduler_cls
    if hasattr(stock, "headrace_root"):
        return
    startup_phases.watch_startup(paths.stats_paths(root).phase)
    termination_message.install_handler()

    def get_scheduler_cls(config: Any) -> Any:
        """Return the class or factory that the engine calls with keyword arguments to make its scheduler."""
        try:
            return _choose(config, stock(config), root)
        except Exception:
            log.exception("headrace: could not choose a scheduler; vLLM's own runs")
            return stock(config)

    get_scheduler_cls.headrace_root = root  # type: ignore[attr-defined]
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
    try:
        _take_part_in_resuming(root)
    except Exception:
        log.exception("headrace: requests can't be resumed here")


def _take_part_in_resuming(root: Path) -> None:
    import vllm  # noqa: PLC0415

    from headrace_engine.adapter import compat  # noqa: PLC0415

    if compat.explain_unsupported_version(vllm.__version__) is not None:
        return
    # It names parts of vLLM that other versions lack.
    from headrace_engine.adapter import resume  # noqa: PLC0415

    resume.take_part_in_front_end(root)
    resume.take_part_in_worker()


def _choose(config: Any, stock: type, root: Path) -> Any:
    import vllm  # noqa: PLC0415

    from headrace_engine.adapter import boot_report, compat  # noqa: PLC0415

    reason = compat.explain_unsupported_version(vllm.__version__)
    if reason is None and config.scheduler_cls is not None:
        reason = f"--scheduler-cls {config.scheduler_cls} was given; remove it to use policies"
    if reason is not None:
        boot_report.report_boot(root, 0, stock, reason)
        return stock
    # It names parts of vLLM that other versions lack.
    from headrace_engine.adapter import scheduler_factory  # noqa: PLC0415

    return functools.partial(scheduler_factory.make_scheduler, stock, root)
