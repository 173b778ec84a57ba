"""Who has been promised which KV, in blocks: exact allocation, reserve, groups, hosts and hosted.

vLLM hands out blocks one by one as tokens come, so allocating for a predicted length is bookkeeping about the
future: whoever generates has been allotted its tokens so far and its padded predicted output. `main` is what
generation tasks (GTs) are allotted from, `reserve` the small rest for prompts and for those who outgrow their
prediction [EconoServe, sections 3.2 and 3.3].

A group holds GTs of the same allotted length that were let in together. What its members leave behind when
they end early is free only when the last of them has ended: they start and end together [time-synced
batching, section 3.3.2]. A host lends room that it will not need before it has made a half, a quarter, an
eighth of its output; its guest there must be done by then, and may be a host in turn [KVC pipelining, 3.2].

What a task holds together with others, the same beginning of their prompts, is not allotted to it. The
longest such beginning is allotted to all of them together, for as long as anyone shares it (ours).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace_engine.policies.engine_view import EngineLimits, RequestView


@dataclass(eq=False, slots=True)
class Group:
    """GTs that were let in together with the same length; `kept` blocks wait for its last member's end."""

    members: int = 0
    kept: int = 0


@dataclass(eq=False, slots=True)
class Task:
    """A request that holds KV. It runs if it `generates`; else it is in its prefill, or waits with its KV."""

    request: RequestView
    main: int = 0  # blocks
    reserve: int = 0  # blocks
    shared: int = 0  # blocks that others held when it started
    generates: bool = False
    start: int = 0  # tokens when it was allotted its output
    limit: int = 0  # tokens up to which it has been allotted KV
    group: Group | None = None
    host: Task | None = None
    return_at: int = 0  # tokens of the host with which its room must be free again
    guests: list[Task] = field(default_factory=list)


class Ledger:
    """The books; `free` of main may be negative after a forced start or a change of policy."""

    def __init__(self, limits: EngineLimits, reserved_percent: int) -> None:
        self._limits = limits
        self.reserve = -(-limits.total_blocks * reserved_percent // 100)
        self.free = limits.total_blocks - self.reserve
        self.tasks: dict[RequestView, Task] = {}
        self.hosted = 0  # tasks
        self.joined_others = False  # someone started who shares more than anyone did
        self._common = 0  # blocks of main that are allotted to all who share them

    def start_prompt(self, request: RequestView, shared: int = 0) -> Task:
        """Start a prompt on the reserve, but for `shared` of its blocks, which others hold."""
        task = self.tasks[request] = Task(request, shared=shared)
        task.reserve = self._lacking(task, request.num_tokens)
        self.reserve -= task.reserve
        self.joined_others |= shared > self._common
        self._share()
        return task

    def share(self, task: Task, shared: int) -> None:
        """Let others join `task` in `shared` of its blocks, which are allotted to all of them from now on."""
        given = min(max(shared - task.shared, 0), task.main)
        if not given:
            return
        task.shared += given
        task.main -= given
        self.free += given
        self._share()

    def missing(self, task: Task, tokens: int) -> int:
        """Count the blocks of main that `task` lacks to hold `tokens`."""
        return self._limits.blocks(tokens) - task.shared - task.main

    def allot(self, task: Task, left: int, group: Group | None) -> None:
        """Let `task` generate, with `left` more output tokens on main."""
        task.start, task.limit = task.request.num_tokens, task.request.num_tokens + left
        self._move_to_main(task, task.limit)
        task.generates, task.group = True, group
        if group is not None:
            group.members += 1

    def lodge(self, task: Task, left: int, host: Task, lent: int) -> None:
        """Let `task` generate, its `left` output tokens in the `lent` tokens of `host`."""
        task.start, task.limit = task.request.num_tokens, task.request.num_tokens + max(left, lent)
        self._move_to_main(task, task.start)
        task.generates, task.host, task.return_at = True, host, host.start + lent
        host.guests.append(task)
        self.hosted += 1

    def extend(self, task: Task, tokens: int) -> bool:
        """Let an outgrown `task` have `tokens` from the reserve; False if that is not there."""
        needed = self._lacking(task, tokens)
        if needed > self.reserve:
            return False
        self.reserve -= max(needed, 0)
        task.reserve += max(needed, 0)
        task.limit = self._limits.tokens(task.main + task.reserve + task.shared)
        self._leave_group(task, 0)
        self._leave_host(task)
        return True

    def suspend(self, task: Task) -> None:
        """Have an outgrown `task` wait with the KV that it has."""
        task.generates = False
        self._leave_group(task, 0)

    def close(self, request: RequestView) -> None:
        """Take in that `request` has no KV any more; guests stay where they are, for themselves."""
        task = self.tasks.pop(request)
        self._leave_host(task)
        for guest in task.guests:
            needed = max(self._lacking(guest, guest.limit), 0)
            guest.main += needed
            self.free -= needed
            guest.host = None
        self.hosted -= len(task.guests)
        task.guests.clear()
        self.reserve += task.reserve
        self._leave_group(task, task.main)
        self._share()

    def lent_by(self, host: Task, minimum: int) -> Iterable[tuple[int, int]]:
        """Yield the rooms that `host` could lend, longest first: length, tokens until it is needed back."""
        lent, taken = (host.limit - host.start) // 2, {guest.return_at for guest in host.guests}
        made = host.request.num_tokens - host.start
        while lent >= minimum and lent > made:
            if host.start + lent not in taken:
                yield lent, lent - made
            lent //= 2

    def _lacking(self, task: Task, tokens: int) -> int:
        """Count the blocks that `task` lacks to hold `tokens`, negative if it has more."""
        return self.missing(task, tokens) - task.reserve

    def _share(self) -> None:
        common = max((task.shared for task in self.tasks.values()), default=0)
        self.free += self._common - common
        self._common = common

    def _move_to_main(self, task: Task, tokens: int) -> None:
        needed = max(self.missing(task, tokens), 0)
        self.free -= needed
        task.main += needed
        self.reserve += task.reserve
        task.reserve = 0

    def _leave_host(self, task: Task) -> None:
        if task.host is not None:
            task.host.guests.remove(task)
            task.host = None
            self.hosted -= 1

    def _leave_group(self, task: Task, leaves_behind: int) -> None:
        group, task.group = task.group, None
        if group is None:
            self.free += leaves_behind
            return
        group.members -= 1
        group.kept += leaves_behind
        if not group.members:
            self.free += group.kept
            group.kept = 0
