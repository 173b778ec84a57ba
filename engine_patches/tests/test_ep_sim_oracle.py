import pytest

from headrace_engine.sim.oracle import Oracle
from headrace_engine.sim.workloads.arrival import Arrival

ARRIVALS = [Arrival(float(number), 10, number + 1) for number in range(2000)]


def right(arrivals):
    return sum(arrival.hint == arrival.output_tokens for arrival in arrivals) / len(arrivals)


@pytest.mark.parametrize("accuracy", [0, 0.75, 1])
def test_the_stated_share_is_told_the_truth(accuracy):
    told = Oracle(accuracy)(ARRIVALS)
    assert right(told) == pytest.approx(accuracy, abs=0.03)
    assert {arrival.hint for arrival in told} <= {arrival.output_tokens for arrival in ARRIVALS}
    assert [arrival.at for arrival in told] == [arrival.at for arrival in ARRIVALS]


def test_what_is_told_hangs_on_seed_and_place_alone():
    assert Oracle(0.5, 1)(ARRIVALS) == Oracle(0.5, 1)(ARRIVALS) != Oracle(0.5, 2)(ARRIVALS)


def test_an_accuracy_is_a_share():
    with pytest.raises(ValueError, match="not a share"):
        Oracle(75)
