"""Traffic is told in sums over windows of arrivals; nothing that an engine writes can stop that."""

from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st
from sc_fake_engine import finished

from headrace_engine.contracts import dumps, loads
from headrace_engine.contracts.fetch import MOST_BYTES
from headrace_engine.contracts.traffic import MOST_WINDOWS, SLOTS, WINDOW_SECONDS, Traffic, TrafficWindow
from headrace_sidecar.traffic_log import TrafficLog

NOW = 1_795_000_000.0  # a multiple of the window's length


def arrivals(*slots):
    return tuple(slots.count(slot) for slot in range(SLOTS))


def test_requests_count_in_the_window_in_which_they_arrived():
    log = TrafficLog()
    log.add([finished(time=NOW + 5, e2e=6.0, prompt_tokens=100, output_tokens=10, targets=7, met=7)])
    log.add([finished(time=NOW + 9, e2e=1.5, prompt_tokens=300, output_tokens=40, targets=7, met=6)])
    log.add([finished(time=NOW + 10, e2e=0.5, prompt_tokens=500, output_tokens=2, targets=0, met=0)])
    assert log.last_hour(NOW + 15).windows == (
        TrafficWindow(int(NOW) - WINDOW_SECONDS, arrivals(38), 100, 10, 1e4, 100.0, 1, 6.0),
        TrafficWindow(int(NOW), arrivals(15, 19), 800, 42, 340_000.0, 1604.0, 1, 2.0),
    )


def test_an_hour_is_kept():
    log = TrafficLog()
    seconds = WINDOW_SECONDS * MOST_WINDOWS
    for second in range(0, 3 * seconds, WINDOW_SECONDS):
        log.add([finished(time=NOW + second, e2e=0.0)])
    end = NOW + 3 * seconds - 1
    told = log.last_hour(end).windows
    assert len(told) == MOST_WINDOWS
    assert end - seconds < told[0].start <= end - seconds + WINDOW_SECONDS
    assert log.last_hour(end + seconds).windows == ()
    assert len(log.last_hour(end + seconds // 2).windows) == MOST_WINDOWS // 2


def test_an_hour_of_the_longest_sums_is_short_enough_for_a_reader():
    log = TrafficLog()
    most = 2**20
    for number in range(MOST_WINDOWS):
        arrived = NOW + number * WINDOW_SECONDS
        log.add(
            finished(time=arrived + slot / 2 + 1 / 3, e2e=1 / 3, prompt_tokens=most - 1, output_tokens=most)
            for slot in range(SLOTS)
            for _ in range(100)
        )
    assert len(dumps(log.last_hour(arrived))) < MOST_BYTES - 1024


@given(
    st.lists(
        st.builds(
            lambda at, e2e, tokens, met: finished(time=at, e2e=e2e, prompt_tokens=tokens, met=met),
            st.floats(),
            st.floats(),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
        )
    )
)
def test_whatever_an_engine_writes_can_be_told(requests):
    log = TrafficLog()
    log.add([*requests, finished(time=NOW, e2e=0.5), finished(time=inf), finished(time=nan)])
    told = log.last_hour(NOW)
    assert loads(Traffic, dumps(told)) == told
    assert sum(window.requests for window in told.windows) >= 1
