"""Has plans made for pools: asks the engines for their traffic, and a process for the plan.

    reconcile ── follow(pool) ──► a task per pool ── every minute ──► GET /traffic of each engine
                                       └── every ten minutes ──► a process ──► on_change(pool)

Reconciles read the answers; they never wait for one. One plan is made at a time, since that computes for up
to minutes: at low priority, and beside the event loop. Another spec has another plan made at once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace_engine.contracts import ContractError, loads
from headrace_engine.contracts.fetch import fetch
from headrace_engine.contracts.traffic import Traffic
from headrace_operator import names
from headrace_operator.api import Key, Reason
from headrace_operator.api.bodies import Body
from headrace_operator.errors import ApiError
from headrace_operator.placement.traffic_history import TrafficHistory
from headrace_operator.planning.question import Answer, Question, ServiceTraffic, dump_json, load_json

_ASK_SECONDS = 60.0
_PLAN_SECONDS = 600.0  # between two plans of a pool
_PAUSE_SECONDS = 5.0  # between two looks at a pool whose spec changes all the time
_ANSWER_SECONDS = 2.0  # for the traffic of an engine
_AT_ONCE = 16  # engines
_LONGEST = 400.0  # seconds for a plan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolView:
    """A raw GPUPool with its services as far as they exist, by name."""

    pool: Body
    services: Mapping[str, Body]
    engines: Mapping[str, Mapping[str, str]]  # of each service: pod uid → address

    @property
    def asked(self) -> object:
        """What a plan is made for: another one needs another plan."""
        return self.pool["spec"], list(self.services)

    @property
    def specs(self) -> object:
        """Specs of the services."""
        return [body["spec"] for body in self.services.values()]


FetchTraffic = Callable[[str], Awaitable[Traffic]]  # by address; raises OSError or ContractError
MakeAnswer = Callable[[Question], Awaitable[Answer]]
Look = Callable[[], Awaitable[PoolView]]  # raises ApiError


class NoPlanError(RuntimeError):
    """The process that makes plans came to no end, or to none that can be used."""


async def fetch_traffic(ip: str) -> Traffic:
    """Fetch the traffic of the engine in the pod at this address; raises OSError or ContractError."""
    return loads(Traffic, await fetch(ip, names.SIDECAR_PORT, "/traffic", seconds=_ANSWER_SECONDS))


async def answer_in_process(question: Question) -> Answer:
    """Have a process of its own make the plan; raises NoPlanError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headrace_operator.planning",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_LONGEST):
            told, _ = await process.communicate(dump_json(Question, question))
    except TimeoutError as error:
        raise NoPlanError(f"not made within {_LONGEST:.0f} s: plan for fewer services") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return load_json(Answer, told)
    except ValueError as error:
        raise NoPlanError(f"its process ended with {process.returncode}: see the operator's log") from error


@dataclass(slots=True)
class _Planning:
    """One pool's task and what it knows."""

    look: Look
    generation: int
    task: asyncio.Task[None]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    history: TrafficHistory = field(default_factory=TrafficHistory)
    answer: Answer | None = None
    answered: int = 0  # generation of the pool that the answer is for
    view: PoolView | None = None  # that the answer is for
    due: float = 0.0  # when the next plan is made if nothing changes


class PoolPlanner:
    """The answers of all pools with `spec.placement`. For one event loop. `clock`: unix seconds."""

    def __init__(
        self,
        fetch_traffic: FetchTraffic,
        make_answer: MakeAnswer,
        on_change: Callable[[Key], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch_traffic = fetch_traffic
        self._make_answer = make_answer
        self._on_change = on_change
        self._clock = clock
        self._planning: dict[Key, _Planning] = {}
        self._one_plan = asyncio.Lock()
        self._asking = asyncio.Semaphore(_AT_ONCE)

    def follow(self, key: Key, generation: int, look: Look) -> None:
        """Have plans made for a pool until it is forgotten; `look` tells what there is."""
        planning = self._planning.get(key)
        if planning is None:
            task = asyncio.create_task(self._run(key), name=f"plan {key}")
            self._planning[key] = _Planning(look, generation, task)
        elif planning.generation != generation:
            planning.look, planning.generation = look, generation
            planning.wake.set()

    def forget(self, key: Key) -> None:
        """Make no more plans for a pool."""
        if key in self._planning:
            self._planning.pop(key).task.cancel()

    def answer(self, key: Key, generation: int) -> Answer | None:
        """Return the last answer for this generation of a pool; None if there is none yet."""
        planning = self._planning.get(key)
        return planning.answer if planning and planning.answered == generation else None

    async def stop(self) -> None:
        """End all tasks, and wait for their ends."""
        tasks = [each.task for each in self._planning.values()]
        for key in list(self._planning):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key) -> None:
        planning = self._planning[key]
        while True:
            planning.wake.clear()
            try:
                await self._step(key, planning)
            except ApiError as error:
                logger.warning("%s: no plan is made: %s", key, error)
            except Exception:
                logger.exception("%s: no plan is made", key)
            try:
                async with asyncio.timeout(_ASK_SECONDS):
                    await planning.wake.wait()
                await asyncio.sleep(_PAUSE_SECONDS)
            except TimeoutError:
                continue

    async def _step(self, key: Key, planning: _Planning) -> None:
        """Ask the engines, and make a plan if one is due."""
        generation, view = planning.generation, await planning.look()
        await self._ask(planning.history, view)
        if not (view.pool and view.services and self._is_due(planning, view)):
            return
        async with self._one_plan:
            planning.answer = await self._answer(planning.history, view)
        planning.answered, planning.view = generation, view
        planning.due = self._clock() + _PLAN_SECONDS
        self._on_change(key)

    async def _ask(self, history: TrafficHistory, view: PoolView) -> None:
        await asyncio.gather(
            *(
                self._ask_one(history, service, engine, address)
                for service, engines in view.engines.items()
                for engine, address in engines.items()
            )
        )
        for service, engines in view.engines.items():
            history.forget_ended(service, engines, self._clock())

    async def _ask_one(self, history: TrafficHistory, service: str, engine: str, address: str) -> None:
        """Ask one engine; of one that can't be asked, what it told before counts."""
        try:
            async with self._asking:
                traffic = await self._fetch_traffic(address)
        except (OSError, ContractError) as error:
            logger.debug("traffic of %s at %s: %s", service, address, error)
            return
        history.add(service, engine, traffic.windows, self._clock())

    def _is_due(self, planning: _Planning, view: PoolView) -> bool:
        before, now = planning.view, self._clock()
        if planning.answer is None or before is None or before.asked != view.asked or now >= planning.due:
            return True
        if planning.answer.reason is Reason.NO_TRAFFIC:
            return any(planning.history.last_hour(service, now) for service in view.services)
        return planning.answer.reason is Reason.NOT_ESTIMABLE and before.specs != view.specs

    async def _answer(self, history: TrafficHistory, view: PoolView) -> Answer:
        now = self._clock()
        told = tuple(
            ServiceTraffic(dict(body), history.last_hour(name, now), silent=not history.has_told(name))
            for name, body in view.services.items()
        )
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            return await self._make_answer(Question(dict(view.pool), told, moment))
        except (NoPlanError, OSError) as error:
            return Answer(Reason.PLAN_FAILED, f"no plan: {error}")
