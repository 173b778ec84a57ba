"""The switch benchmark's own rules: what counts as a changed output, and which changes it makes."""

import itertools

from e2e.bench import switch
from e2e.bench.switch import Answers


def test_an_answer_that_the_undisturbed_run_gave_is_not_changed():
    before = Answers(tokens={0: {(1, 2)}, 1: {(3,)}})
    assert switch.changed(before, Answers(tokens={0: {(1, 2)}})) == 0
    assert switch.changed(before, Answers(tokens={0: {(1, 2), (1, 9)}, 1: {(3,)}})) == 1


def test_each_change_differs_from_the_one_before():
    changes = [switch.scheduling(number) for number in range(switch.CHANGES)]
    assert all(one != next_one for one, next_one in itertools.pairwise(changes))
    assert {change["policy"] for change in changes} == {"FCFS", "LARRY"}
