"""What the CPU does in and around a step: planning, preparing inputs, handing tokens to clients."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class HostTime:
    """Seconds that vLLM's own work takes beside the GPU's; all 0 is a host that takes no time.

    The engine core plans a step, prepares its inputs and takes in its tokens: `per_step`, and `per_request`
    in the step. Without asynchronous scheduling the GPU waits for all of it. With it the next step is
    prepared while one runs; the GPU waits only for what takes longer than the step, and for the share
    `exposed` of it, which no step hides. The front end takes `intake` from a request's
    arrival until the engine core can see it, and hands on tokens one after another, `per_output` each.
    Our reading of vLLM's engine core and front end; the numbers are measured.
    """

    per_step: float = 0.0
    per_request: float = 0.0
    exposed: float = 0.0
    intake: float = 0.0
    per_output: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a negative time, or a share above 1."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 0 or (each.name == "exposed" and value > 1):
                raise ValueError(f"{each.name}: {value} is not {'a share' if value > 0 else '0 or more'}")

    def step_seconds(self, requests: int) -> float:
        """Return what the engine core takes for a step of so many requests."""
        return self.per_step + self.per_request * requests


NO_HOST_TIME = HostTime()

# Calibrated on published runs of vLLM 0.11 (synchronous) on an H100 (kubernetes-sigs/inference-perf at
# 7de5ef2e, demos/kubecon-na-2025, Apache-2.0): Llama-3.1-8B at 1 to 170 requests/s. `exposed` is from the two
# runs of vLLM 0.19 that the simulator is validated on (LLMServingSim), which are asynchronous.
_ONE_GPU = HostTime(per_step=950e-6, per_request=12e-6, exposed=0.4, intake=16.5e-3, per_output=35e-6)
# With several, each step goes to a process for each GPU and back. From the time per token of vLLM 0.12
# (synchronous) with Qwen3-32B on two, four and eight H100 (aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0).
_MORE_GPUS = replace(_ONE_GPU, per_step=1250e-6, per_request=36e-6)


def server_host_time(tensor_parallel: int) -> HostTime:
    """Return what a GPU server's CPU takes for an engine on so many GPUs, as measured runs show it."""
    return _ONE_GPU if tensor_parallel == 1 else _MORE_GPUS
