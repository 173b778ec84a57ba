"""vLLM's scheduler as a policy sees it: an `EngineView` that reads through."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, cast

from headrace_engine.adapter.encoder import Encoders
from headrace_engine.adapter.prefix_cache import PrefixCache
from headrace_engine.adapter.vllm_types import SingleTypeKVCacheManager, VllmRequest, VllmScheduler
from headrace_engine.cost.model import CostModel
from headrace_engine.policies.engine_view import EngineLimits, RequestView, Targets

if TYPE_CHECKING:
    from headrace_engine.adapter.plan_queue import PlanQueue
    from headrace_engine.adapter.request_tracker import RequestTracker
    from headrace_engine.adapter.step_timer import StepTimer

ENDLESS = 1 << 31  # blocks; a board holds no more than twice as many


def read_limits(scheduler: VllmScheduler) -> EngineLimits:
    """Read the constants of an engine whose scheduler has been set up.

    Without chunked prefill the scan of the queue ends at a prompt that is longer than the step, and so it may
    at one that starts with an image or the like which must not be split: then only whole steps will do.
    """
    config = scheduler.scheduler_config
    whole_steps = not config.enable_chunked_prefill or config.disable_chunked_mm_input
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    groups = [(manager.block_size, _most_blocks(manager)) for manager in managers]
    whole = [size for size, most in groups if most is None]
    block_size = min(whole, default=scheduler.block_size)
    return EngineLimits(
        block_size=block_size,
        kv_groups=whole.count(block_size),
        total_blocks=_usable_blocks(scheduler),
        max_step_tokens=scheduler.max_num_scheduled_tokens,
        max_running=scheduler.max_num_running_reqs,
        min_step_tokens=scheduler.max_num_scheduled_tokens if whole_steps else 1,
        decode_tokens=1 + scheduler.num_spec_tokens,
        other_groups=tuple(
            (size, ENDLESS if most is None else most)
            for size, most in groups
            if most is not None or size != block_size
        ),
        # A connector brings what was computed elsewhere.
        keeps_kv=bool(scheduler.kv_cache_manager.enable_caching) or scheduler.connector is not None,
    )


def _usable_blocks(scheduler: VllmScheduler) -> int:
    """Count the KV blocks for requests; a model without attention over the past (an encoder) has none."""
    if not scheduler.kv_cache_manager.coordinator.single_type_managers:
        return ENDLESS
    return scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1  # one is vLLM's null block


def _most_blocks(manager: SingleTypeKVCacheManager) -> int | None:
    """Return how many blocks one request takes in `manager`'s layers at most; None: as its tokens need.

    vLLM says so itself of windows, but of states only in what it reserves for them (`MambaSpec`).
    """
    public, private = "max_admission_blocks_per_request", "_max_admission_blocks_per_request"  # until 0.30
    most: int | None = getattr(manager, public if hasattr(manager, public) else private)
    mode, drafted = getattr(manager, "mamba_cache_mode", ""), getattr(manager, "num_speculative_blocks", 0)
    if mode == "align":  # the last two states, what drafts write, and where a prompt can be gone on with
        most = 2 + drafted
        most += getattr(manager.kv_cache_spec, "num_prefill_checkpoint_blocks", 0)
    if mode == "none":
        most = 1 + drafted
    return most


class SchedulerView:
    """Live: nothing is copied, so it costs what is read; but `now` and `holding` are as of a step's start."""

    def __init__(
        self,
        scheduler: VllmScheduler,
        limits: EngineLimits,
        queue: PlanQueue,
        step_timer: StepTimer,
        tracker: RequestTracker,
    ) -> None:
        self._scheduler = scheduler
        self._pool = scheduler.kv_cache_manager.block_pool
        self._queue = queue
        self._step_timer = step_timer
        self.limits = limits
        # The requests that policies name are vLLM's own.
        self.targets = cast("Callable[[RequestView], Targets]", tracker.targets)
        self.predicted_output = cast("Callable[[RequestView], float]", tracker.predicted_output)
        self.predict_ahead = cast("Callable[[RequestView], float]", tracker.predict_ahead)
        self.most_output = cast("Callable[[RequestView], int]", tracker.most_output)
        self.first_token = cast("Callable[[RequestView], tuple[float, int] | None]", tracker.first_token)
        self.prefix_cache = PrefixCache(scheduler)
        self.cached_tokens = cast("Callable[[RequestView], int]", self.prefix_cache.cached_tokens)
        self.shared_blocks = cast("Callable[[RequestView], int]", self.prefix_cache.shared_blocks)
        self._encoders = Encoders(scheduler)
        self.now = 0.0
        self.holding: Collection[RequestView] = ()
        self._others = "kv_holding_waiting" if hasattr(scheduler, "kv_holding_waiting") else "skipped_waiting"

    def begin(self, now: float) -> None:
        """Prepare for a plan: who holds KV is as of now, since vLLM's scan takes them in hand.

        Up to 0.30 those who wait for a grammar are in the same queue of vLLM's, and hold none.
        """
        self.now = now
        self.prefix_cache.begin_step()
        others = getattr(self._scheduler, self._others)
        self.holding = tuple(request for request in others if request.num_computed_tokens) if others else ()

    @property
    def waiting(self) -> Collection[RequestView]:
        """The queue, in its own order."""
        return self._queue

    @property
    def running(self) -> Sequence[RequestView]:
        """Requests that hold KV."""
        return self._scheduler.running

    @property
    def free_blocks(self) -> int:
        """KV blocks that no request holds."""
        if self.limits.total_blocks == ENDLESS:
            return ENDLESS
        return self._pool.get_num_free_blocks()

    @property
    def promised_blocks(self) -> int:
        """KV blocks that running requests still need to finish their prefill."""
        if not self._scheduler._inflight_prefills:
            return 0
        return self._scheduler._inflight_prefill_reserved_blocks()

    @property
    def token_at_most(self) -> float | None:
        """Seconds of a prompt token, at most."""
        return self._step_timer.token_at_most

    @property
    def encoder_token(self) -> float:
        """Seconds of a token that encoders yield."""
        return self._step_timer.encoder_token

    def encoder_tokens(self, request: RequestView) -> int:
        """Count the tokens that encoders still have to yield for `request`."""
        vllms = cast("VllmRequest", request)
        return self._encoders.missing(vllms, self.cached_tokens(request)) if vllms.has_encoder_inputs else 0

    @property
    def tokens_per_step(self) -> float:
        """As drafts were accepted lately."""
        return self._step_timer.tokens_per_step

    @property
    def cost(self) -> CostModel | None:
        """How long this engine's steps take."""
        return self._step_timer.cost
