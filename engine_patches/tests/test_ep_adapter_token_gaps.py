"""Gaps between tokens, kept by step, are those that counting token by token finds."""

import random
from itertools import pairwise

import pytest

from headrace_engine.adapter.token_gaps import TokenGaps, TokenTimes


class Counted:
    """One request's tokens, counted one by one."""

    def __init__(self, target):
        self.target, self.times, self.violations = target, [], 0

    def add(self, now):
        if self.times and self.target is not None and now - self.times[-1] > self.target:
            self.violations += 1
        self.times.append(now)

    @property
    def most(self):
        return max([0.0, *(later - before for before, later in pairwise(self.times))])


class Both:
    """The same requests in both ways of counting."""

    def __init__(self):
        self.gaps, self.live, self.ended = TokenGaps(), {}, []

    def join(self, name, target):
        self.live.setdefault(name, (Counted(target), TokenTimes()))

    def step(self, names, now):
        for name in self.gaps.note_step(names, now):
            if name in self.live:
                counted, times = self.live[name]
                self.gaps.begin(name, times, counted.target)
        for name in self.live.keys() & names:
            self.live[name][0].add(now)

    def change_target(self, name, target):
        self.live[name][0].target = target
        self.gaps.change_target(name, target)

    def end(self, name):
        self.gaps.settle(name)
        self.ended.append(self.live.pop(name))


TARGETS = (None, 0.03, 0.2)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("pauses", [0.0, 0.02, 0.5])
def test_gaps_kept_by_step_are_those_of_each_token(seed, pauses):
    dice = random.Random(seed)
    both, now = Both(), 1000.0
    for step in range(400):
        now += dice.choice([0.01, 0.02, 0.05, 0.05, dice.random(), -0.01])
        for number in range(step, step + 12 - len(both.live)):
            both.join(str(number % 16), dice.choice(TARGETS))  # names come back
        names = [name for name in both.live if dice.random() >= pauses] + ["unknown"] * (step % 9 == 0)
        if names:
            both.step(names, now)
        for name in list(both.live):
            if dice.random() < 0.02:
                both.end(name)
            elif dice.random() < 0.02:
                both.change_target(name, dice.choice(TARGETS))
    assert len(both.ended) > 40
    for counted, times in both.ended:
        if counted.times:
            assert (times.first, times.last) == (counted.times[0], counted.times[-1])
        assert (times.most, times.violations) == (counted.most, counted.violations)
