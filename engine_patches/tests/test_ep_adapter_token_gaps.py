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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("pauses", [0.0, 0.02, 0.5])
def test_gaps_kept_by_step_are_those_of_each_token(seed, pauses):
    dice = random.Random(seed)
    gaps, now, number = TokenGaps(), 1000.0, 0
    live, kept, ended = {}, {}, []

    def end(name):
        gaps.settle(name)
        ended.append((live.pop(name), kept.pop(name)))

    for _ in range(400):
        now += dice.choice([0.01, 0.02, 0.05, 0.05, dice.random(), -0.01])
        while len(live) < 8 and dice.random() < 0.5:
            name = str(number % 12)  # names come back
            number += 1
            if name not in live:
                live[name], kept[name] = Counted(dice.choice([None, 0.03, 0.2])), TokenTimes()
        names = [name for name in live if dice.random() >= pauses] + ["unknown"] * (dice.random() < 0.1)
        if not names:
            continue
        for name in gaps.note_step(names, now):
            if name in live:
                gaps.begin(name, kept[name], live[name].target)
        for name in names:
            if name in live:
                live[name].add(now)
        for name in list(live):
            if dice.random() < 0.02:
                end(name)
            elif dice.random() < 0.02:
                live[name].target = dice.choice([None, 0.03, 0.2])
                gaps.change_target(name, live[name].target)
    for name in list(live):
        end(name)
    told = [(times.first, times.last, times.most, times.violations) for _, times in ended]
    assert told == [
        (each.times[0], each.times[-1], each.most, each.violations) if each.times else (0.0, 0.0, 0.0, 0)
        for each, _ in ended
    ]
    assert len(ended) > 40
