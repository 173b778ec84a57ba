"""Whether this engine runs policies, or vLLM's own scheduler with the reason in stats/rank<r>.json."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.core.sched.scheduler import Scheduler

from headrace_engine.adapter import compat, resume
from headrace_engine.adapter.boot_report import report_boot
from headrace_engine.adapter.control_link import FileLink
from headrace_engine.adapter.plan_queue import PlanQueue
from headrace_engine.adapter.policy_scheduler import add_policies
from headrace_engine.adapter.vllm_types import VllmConfig

log = logging.getLogger("vllm.headrace")


def make_scheduler(stock: type, root: Path, vllm_config: VllmConfig, **rest: Any) -> Any:
    """Make the engine's scheduler: `stock` with policies if that can work, else `stock` as it is.

    Takes the keyword arguments of vLLM's schedulers.
    """
    scheduler = stock(vllm_config=vllm_config, **rest)
    rank = longest = 0
    try:
        longest = vllm_config.model_config.max_model_len
        rank = vllm_config.parallel_config.data_parallel_index
        reason = explain_refusal(vllm_config)
        if reason is None:
            link = FileLink(root, rank)
            ours = add_policies(scheduler, link)
            _take_part_in_resuming(scheduler, root)
            report_boot(root, rank, stock, boot=link.boot, max_model_len=longest)
            return ours
    except Exception as error:  # whatever it is, the engine serves without policies
        log.exception("headrace: the policy scheduler did not start")
        reason = f"the policy scheduler did not start: {error}"
    report_boot(root, rank, stock, reason, max_model_len=longest)
    return scheduler


def _take_part_in_resuming(scheduler: Any, root: Path) -> None:
    try:
        resume.take_part_in_core(scheduler.structured_output_manager, root)
    except Exception:
        log.exception("headrace: requests can't be resumed here")


def explain_refusal(vllm_config: VllmConfig) -> str | None:
    """Explain why policies can't run in this engine, for the user to act on; None if they can."""
    config = vllm_config.scheduler_config
    if config.policy != "fcfs":
        return f"--scheduling-policy {config.policy} orders requests by itself; remove it to use policies"
    if vllm_config.parallel_config.data_parallel_size > 1:
        return "--data-parallel-size above 1 is not supported; use replicas instead"
    return compat.explain_missing_parts(Scheduler, PlanQueue, RequestQueue.__abstractmethods__)
