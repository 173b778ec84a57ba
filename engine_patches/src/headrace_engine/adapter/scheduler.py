"""vLLM's schedulers with a policy: hooks around vLLM's own methods, none of which is replaced.

No exception of ours leaves a hook, since it would end the engine: what is called besides vLLM's own method
is `Contained`. A step that could not be planned is vLLM's own. If telling fails it ends, its heartbeat too,
while the engine and its policy go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from headrace_engine.adapter.contained import Contained
from headrace_engine.adapter.encoder import encoded
from headrace_engine.adapter.forecast import Forecast, ran_to_its_end
from headrace_engine.adapter.guard import Guard
from headrace_engine.adapter.link import Link, Staged
from headrace_engine.adapter.pace import Pace
from headrace_engine.adapter.queue import PlanQueue
from headrace_engine.adapter.step import StepPlanner
from headrace_engine.adapter.telemetry import Telemetry
from headrace_engine.adapter.view import SchedulerView, limits_of
from headrace_engine.policies.composition import Policy

log = logging.getLogger("vllm.headrace")


class PolicyScheduler:
    """Mixed in before one of vLLM's schedulers; `link` is set by `scheduler_class`."""

    link: ClassVar[Link]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take_part()

    def _take_part(self) -> None:
        """Set up what the hooks need; the scheduler itself is ready."""
        limits = limits_of(self)
        queue = PlanQueue(limits, self._joined, self._left)
        link = self.link
        self._contained = Contained()
        self._pace = Pace(link.known_cost, always=link.listens)
        self._forecast = Forecast(self._pace, limits, link.predictor, link.stopwatch, link.most_output)
        view = SchedulerView(self, limits, queue, self._pace, self._forecast)
        self._prefix_cache = view.prefix_cache
        self._guard = Guard(view, Policy, self.link.stopwatch)
        self._step = StepPlanner(self, view, queue, self._guard)
        self._in_force: Staged | None = None
        self._telemetry: Telemetry | None = None
        if self.link.listens:
            self._telemetry = Telemetry(self, view, queue, self._guard, self._forecast, self.link)
        self.waiting = queue
        self.link.start(limits)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plan, let vLLM schedule, tell."""
        now = self._contained(self._begin, failed=0.0)
        tokens = 0
        try:
            output = super().schedule(*args, **kwargs)  # type: ignore[misc]
            tokens = output.total_num_scheduled_tokens
        finally:
            self._contained(self._step.end, tokens)
        self._contained(self._planned, output, now)
        self._tell(Telemetry.scheduled, output)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Let vLLM take in a step's tokens, then tell."""
        results = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        now = self._contained(self.link.clock, failed=0.0)
        sample = self._contained(self._pace.delivered, scheduler_output, now)
        if scheduler_output.scheduled_spec_decode_tokens:
            self._contained(self._pace.sampled, scheduler_output, model_runner_output)
        self._contained(self._forecast.delivered, scheduler_output.num_scheduled_tokens.keys(), now)
        self._tell(Telemetry.delivered, sample, results, now)
        return results

    def add_request(self, request: Any) -> None:
        """Let vLLM enqueue a request, then tell; of a streamed input only the first part is a request."""
        super().add_request(request)  # type: ignore[misc]
        if self.requests.get(request.request_id) is request:  # type: ignore[attr-defined]
            self._contained(self._forecast.of, request)
            self._tell(Telemetry.arrived, request)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if self._contained(ran_to_its_end, request):
            self._contained(self._learn, request)
        self._contained(self._forecast.left, request)
        self._tell(Telemetry.left, request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def shutdown(self) -> None:
        """Stop our thread too."""
        self._contained(self._forecast.close)
        self._contained(self.link.close)
        super().shutdown()  # type: ignore[misc]

    def _begin(self) -> float:
        """Put a new document in force and plan the step; gives the time."""
        now = self.link.clock()
        try:
            staged = self.link.staged
            if staged is not self._in_force and staged is not None:
                self._put_in_force(staged)
            self._step.begin(now)
        except Exception as error:
            self._guard.failed(error)
        return now

    def _planned(self, output: Any, now: float) -> None:
        self._pace.planned(output, now, encoded(output, self.requests))  # type: ignore[attr-defined]

    def _put_in_force(self, staged: Staged) -> None:
        self._in_force = staged
        self._guard.install(staged.make)
        self._contained(self._forecast.install, staged.document)
        self._tell(Telemetry.installed, staged.document)
        log.info("headrace: policy %s (%s) in force", staged.document.policy, staged.document.hash)

    def _learn(self, request: Any) -> None:
        self._guard.finished(request, self._forecast.of(request).first)
        self._forecast.finished(request)

    def _joined(self, request: Any) -> None:
        self._contained(self._guard.add, request)

    def _left(self, request: Any) -> None:
        self._contained(self._prefix_cache.forget, request)
        self._contained(self._guard.discard, request)

    def _tell(self, event: Callable[..., None], *details: Any) -> None:
        telemetry = self._telemetry
        if telemetry is not None and not self._contained(_told, event, telemetry, *details):
            self._telemetry = None
            self._contained(self.link.mute)


def _told(event: Callable[..., None], *details: Any) -> bool:
    event(*details)
    return True


def scheduler_class(stock: type, link: Link) -> type:
    """`stock`, one of vLLM's two schedulers, with policies from `link`; raises TypeError for any other."""
    if stock is AsyncScheduler:
        return type("HeadraceAsyncScheduler", (PolicyScheduler, AsyncScheduler), {"link": link})
    if stock is Scheduler:
        return type("HeadraceScheduler", (PolicyScheduler, Scheduler), {"link": link})
    raise TypeError(f"{stock.__name__} is not a scheduler that policies can run on")


def with_policies(scheduler: Any, link: Link) -> Any:
    """`scheduler`, which vLLM has made, as one with policies from `link`; what raises leaves it as it is.

    Its state moves over, since it can be made only once: a second one would find the ports of its event
    publisher and of its KV connector taken.
    """
    ours: Any = object.__new__(scheduler_class(type(scheduler), link))
    vars(ours).update(vars(scheduler))
    ours._take_part()
    return ours
