"""Token deadlines: how long the step being planned may take, by the targets of requests that are generating.

A request's TPOT target is for its mean gap: its next token is due at its first plus the target for each gap
since. What it is ahead of that it has saved, and a step may spend it; a request that is behind is caught up
with over half the tokens it still has to come [AccelGen, section 4.2, has one SLO for every iteration; the
mean, and with it saving, is our reading]. An E2E target leaves each token to come an even share of the time
left, so what one iteration overran or left over carries over to the next [AccelGen, section 4.3].

Looking at each of 256 requests at each step would take longer than the rest of planning. So a step looks
at those that were tightest, at those that just started, and at the next few of the others in turn.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress, count
from math import inf
from operator import attrgetter, is_not

from headrace_engine.policies.engine_view import EngineView, RequestView

AIM = 0.96  # of a TPOT target is what steps are planned for: costs are estimates, and late is late
SPEND = 1.0  # most of its target that a request spends of its savings in one step
CATCH_UP = 0.5  # of its tokens to come, over which a request that is behind catches up
TIGHTEST, IN_TURN = 4, 6  # requests looked at in each step
FAR = 3.0  # times a step before the next token is due: it can skip one
FEW = 16  # requests that end in one step; if more do, each is looked up
SAMPLES = 64  # about so many make an average
ALLOWED = attrgetter("allowed")


class RunningRequest:
    """One running request and when its next tokens are due."""

    __slots__ = (
        "allowed",
        "computed",
        "count",
        "deadline",
        "looked",
        "request",
        "since",
        "skipped",
        "tpot",
        "turn",
    )

    def __init__(self, request: RequestView, view: EngineView) -> None:
        targets = view.targets(request)
        self.request = request
        self.tpot = None if targets.tpot is None else AIM * targets.tpot
        self.deadline = None if targets.e2e is None else request.arrival_time + targets.e2e
        self.since: float | None = None  # when it was first seen to have output; None: amid its prefill
        self.count = 0  # output tokens that it had then
        self.computed = 0  # tokens of context when last looked at,
        self.turn = 0.0  # when a decode that ran all along had made so many
        self.looked = 0  # step for which it said last
        self.skipped = -1  # output tokens that it had when it skipped a step last
        self.allowed = inf  # how many seconds that may take

    def saved(self, now: float) -> float:
        """Return by how many seconds it was ahead of its TPOT target at its last token; negative: behind."""
        if self.tpot is None or self.since is None:
            return 0.0
        return self.since + (self.request.num_output_tokens - self.count) * self.tpot - now


class TokenDeadlines:
    """Follows the running requests from step to step.

    `decodes` generate, the other running ones are amid their prefill, which `prefills` yields. `context` is
    the tokens that the decodes attend to; `prompt` the mean length of prompts that started lately; `step`
    the mean seconds of a step while any request ran. `looked_at` are the decodes looked at in this step.
    """

    def __init__(self) -> None:
        self._requests: dict[RequestView, RunningRequest] = {}
        self._starting: dict[RequestView, RunningRequest] = {}  # those amid their prefill
        self._running: list[RequestView] = []  # as it was
        self._tight: list[RunningRequest] = []
        self._place = 0  # of who is next in turn
        self._steps = 0
        self._made = 0.0  # tokens that a step gave each decode, in sum
        self._base = 0.0  # sum of `computed` - `turn`; with what was made since, it is the context
        self._gain = 1.0  # tokens that a step gives
        self._looked_at = inf
        self._started = 0
        self.prompt = 0.0
        self.step = 0.0
        self.planned = 0.0  # seconds of the step planned last, as its planner predicts them
        self.looked_at: list[RunningRequest] = []
        self.limit: float | None = None  # seconds that the step may take; None: no running request says

    @property
    def decodes(self) -> int:
        """Running requests that are past their prefill."""
        return len(self._requests) - len(self._starting)

    @property
    def context(self) -> int:
        """Tokens that the decodes attend to, in sum."""
        return max(round(self._base + self.decodes * self._made), 0)

    @property
    def token(self) -> float:
        """Seconds that a token takes: a mean step's, less if drafts are accepted."""
        return self.step / self._gain

    def prefills(self) -> Iterator[RequestView]:
        """Yield running requests amid their prefill, in order of starting."""
        return iter(self._starting)

    def find_request(self, request: RequestView) -> RunningRequest | None:
        """Return what is known of a running request; None if it does not run."""
        return self._requests.get(request)

    def find_skippable(self, step: float, view: EngineView) -> list[RequestView]:
        """Return those of the requests looked at that could as well skip a step of so many seconds.

        Who has skipped one gets a token before it skips another: nobody's stream stands still for long.
        """
        return [
            each.request
            for each in self.looked_at
            if each.skipped != each.request.num_output_tokens and FAR * step <= _due(each, view) < inf
        ]

    def record_skips(self, requests: Iterable[RequestView]) -> None:
        """Note that these skip the step that is being planned."""
        for request in requests:
            self._requests[request].skipped = request.num_output_tokens

    def observe_step(self, view: EngineView) -> None:
        """Take in the running requests as a step is being planned."""
        now, running = view.now, view.running
        self._time(now)
        if running != self._running:
            self._follow(view)
        self._steps += 1
        self._gain = view.tokens_per_step
        self._made += self._gain
        fresh = self._begin(view)
        place = self._place if self._place < len(running) else 0
        window = [self._requests[request] for request in running[place : place + IN_TURN]]
        self._place = place + IN_TURN
        looked_at, steps, allows = [], self._steps, self._allows
        for entry in (*self._tight, *fresh, *window):
            if entry.looked != steps and entry.since is not None:
                entry.looked, entry.allowed = steps, allows(entry, now, view)
                looked_at.append(entry)
        self.looked_at = looked_at
        self._tight = tight = sorted(looked_at, key=ALLOWED)[:TIGHTEST]
        self.limit = tight[0].allowed if tight and tight[0].allowed < inf else None

    def _time(self, now: float) -> None:
        if self._running and now >= self._looked_at:
            # A step planned ahead of another is looked at the same moment; on average that comes out right.
            self.step += (now - self._looked_at - self.step) / min(self._steps + 1, SAMPLES)
        self._looked_at = now

    def _follow(self, view: EngineView) -> None:
        running, known = view.running, self._requests
        joined, left = find_changes(self._running, running, known)
        for request in joined:
            entry = known[request] = self._starting[request] = RunningRequest(request, view)
            entry.turn = self._made
            self._started += 1
            self.prompt += (request.num_prompt_tokens - self.prompt) / min(self._started, SAMPLES)
        for request in left:
            gone = known.pop(request)
            if self._starting.pop(request, None) is None:
                self._base -= gone.computed - gone.turn
        if left:
            self._tight = [entry for entry in self._tight if entry.request in known]
        self._running = list(running)

    def _begin(self, view: EngineView) -> list[RunningRequest]:
        """Begin with those whose first token has come; or whose lost KV is back, who owe for the time."""
        if not self._starting:
            return []
        fresh = [
            entry
            for request, entry in self._starting.items()
            if request.num_output_tokens and request.num_computed_tokens >= request.num_tokens - 1
        ]
        for entry in fresh:
            del self._starting[entry.request]
            first = view.first_token(entry.request)
            entry.since, entry.count = first or (view.now, entry.request.num_output_tokens)
            entry.computed, entry.turn = entry.request.num_tokens, self._made
            self._base += entry.computed - entry.turn
        return fresh

    def _allows(self, entry: RunningRequest, now: float, view: EngineView) -> float:
        """Return the seconds that the step may take for this request; inf: it says nothing."""
        request, tpot = entry.request, entry.tpot
        tokens = request.num_tokens
        self._base += tokens - self._made - entry.computed + entry.turn
        entry.computed, entry.turn = tokens, self._made
        allowed = inf
        if tpot is not None:
            saved, due = entry.saved(now), tpot * self._gain
            if request.num_computed_tokens >= tokens:
                saved -= self.planned - due  # a step is in flight, which yields tokens before this one does
            allowed = due + min(saved, SPEND * due) if saved >= 0 else self._catching_up(entry, saved, view)
        if entry.deadline is not None:
            share = _share(entry, entry.deadline, view) * self._gain
            if share > self.shortest:
                allowed = min(allowed, max(share, self.balanced))
        return allowed

    shortest = 0.0  # seconds of a step that only decodes: who needs less can't be helped
    balanced = 0.0  # seconds of a step that E2E targets do not press below

    def _catching_up(self, entry: RunningRequest, saved: float, view: EngineView) -> float:
        target = entry.tpot or 0.0
        left = view.predicted_output(entry.request) - entry.request.num_output_tokens
        needed = target + saved / max(left * CATCH_UP, 1.0)
        return (needed if needed * self._gain > self.shortest else target) * self._gain


def find_changes(
    before: list[RequestView], running: Sequence[RequestView], known: Container[RequestView]
) -> tuple[Sequence[RequestView], list[RequestView]]:
    """Find out who joined and who left the running requests.

    An engine appends who starts, and few end in a step, so both lists are alike up to the first that ended:
    to look up each of 256 requests takes five times as long. Other changes are found too, and looked up.
    """
    end = len(running)
    while end and running[end - 1] not in known:
        end -= 1
    stayed = list(running[:end])
    left: list[RequestView] = []
    before = list(before)
    while 0 < len(before) - len(stayed) <= FEW - len(left):
        differs = compress(count(), map(is_not, before, stayed))
        left.append(before.pop(next(differs, len(stayed))))
    if before == stayed:
        return running[end:], left
    members = set(running)
    joined = [request for request in running if request not in known]
    return joined, [request for request in (*before, *left) if request not in members]


def _share(entry: RunningRequest, deadline: float, view: EngineView) -> float:
    """Return the seconds to its deadline for each token that it still has to come."""
    left = view.predicted_output(entry.request) - entry.request.num_output_tokens
    return (deadline - view.now) / max(left, 1.0)


def _due(entry: RunningRequest, view: EngineView) -> float:
    """Return the seconds until its next token is due, or its share of the time left; inf: no target."""
    due = inf if entry.tpot is None else entry.tpot + entry.saved(view.now)
    return due if entry.deadline is None else min(due, _share(entry, entry.deadline, view))
