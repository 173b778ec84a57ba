"""Traces of several services: one clock, one window, and what is said of those that do not go together."""

import pytest
from op_simulate_pool import HEADER, read, write_trace

from headrace_operator.simulate.pool.pool_traces import load_traces
from headrace_operator.simulate.usage_error import UsageError

SERVICES = [read("chat"), read("code")]


@pytest.fixture
def load(tmp_path):
    def load(chat, code, window=600.0, skip=False):
        files = {"chat": write_trace(tmp_path, "chat", chat), "code": write_trace(tmp_path, "code", code)}
        return load_traces(files, SERVICES, window, skip=skip)

    return load


def test_they_are_on_one_clock(load):
    found = load(range(1000, 1040), range(1010, 1060, 5), 1000.0)
    [chat, code] = found.arrivals
    assert [chat[0].at, code[0].at, code[1].at] == [0.0, 10.0, 15.0]
    assert (found.requests, found.seconds, found.trace_seconds) == (50, 55.0, 55.0)


def test_the_window_is_the_busiest_of_all_together(load):
    found = load(range(100), [50 + each / 10 for each in range(100)], 30.0)
    assert 30 <= found.start <= 50
    assert [len(each) for each in found.arrivals] == [30, 100]
    assert (found.arrivals[0][0].at, found.seconds) == (0.0, 30.0)


def test_a_service_may_be_asked_nothing_in_the_window(load):
    found = load([0, *range(200, 300)], [10, 1000], 100.0)
    assert found.arrivals[1] == ()


@pytest.mark.parametrize(
    ("chat", "code", "words"),
    [
        (
            range(1763722800, 1763722860),
            range(1763726400, 1763726460),
            "chat from 2025-11-21T11:00:00Z to 2025-11-21T11:00:59Z, code from 2025-11-21T12:00:00Z to 2025",
        ),
        (range(60), range(1763722800, 1763722860), "chat from 0 s to 59 s, code from 2025-11-21T11:00:00Z"),
        (range(0, 6000, 100), [3], "the busiest 600 s of the traces have 7 requests; at least 50"),
        ([5] * 50, [5], "all 51 requests arrive at the same time"),
        ([2, 1], [1], "chat: "),
    ],
)
def test_what_cannot_be_simulated_together_is_said(load, chat, code, words):
    with pytest.raises(UsageError) as caught:
        load(chat, code)
    assert words in str(caught.value)


def test_bad_rows_are_skipped_where_that_was_asked(tmp_path, load):
    with pytest.raises(UsageError, match=r"code: .*--skip-bad-rows"):
        load(range(60), [*range(60), 3])
    found = load(range(60), [*range(60), 3], skip=True)
    assert (len(found.skipped), found.requests) == (1, 120)
    assert HEADER in (tmp_path / "code.csv").read_text()
