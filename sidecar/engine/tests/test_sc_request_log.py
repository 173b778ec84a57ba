"""The finished-request log is in order of arrival, and the simulator reads it as it is."""

import json

from sc_fake_engine import finished

from headrace_engine.sim.workloads import trace
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_sidecar.request_log import PORTION, RequestLog


def lines(log):
    return [json.loads(line) for portion in log.portions() for line in portion.splitlines()]


def test_requests_are_told_in_order_of_arrival():
    log = RequestLog()
    log.add([finished(time=1_700_000_010.0, e2e=1.0), finished(time=1_700_000_011.5, e2e=8.25)])
    log.add([finished(time=1_700_000_012.0, e2e=2.0, prompt_tokens=7, output_tokens=3, ttft=0.125)])
    assert [line["arrival_time"] for line in lines(log)] == [1_700_000_003.25, 1_700_000_009, 1_700_000_010]
    assert lines(log)[-1] == {
        "arrival_time": 1_700_000_010.0,
        "prompt_tokens": 7,
        "output_tokens": 3,
        "ttft": 0.125,
        "e2e": 2.0,
    }


def test_the_oldest_give_way():
    log = RequestLog(kept=3)
    log.add(finished(time=1_700_000_000.0 + second, e2e=1.0) for second in range(5))
    assert [line["arrival_time"] % 100 for line in lines(log)] == [1, 2, 3]


def test_long_logs_come_in_portions():
    log = RequestLog()
    log.add(finished() for _ in range(2 * PORTION + 1))
    assert [portion.count("\n") for portion in log.portions()] == [PORTION, PORTION, 1]
    assert list(RequestLog().portions()) == []


def test_the_simulator_reads_it(tmp_path):
    log = RequestLog()
    log.add([finished(time=1_700_000_010.0, e2e=1.0), finished(time=1_700_000_012.0, e2e=0.5)])
    path = tmp_path / "log.jsonl"
    path.write_text("".join(log.portions()))
    assert trace.read_trace(path).arrivals == [Arrival(0.0, 300, 20), Arrival(2.5, 300, 20)]


def test_lines_of_several_engines_merge_by_sorting():
    first, second = RequestLog(), RequestLog()
    first.add(finished(time=1_700_000_000.0 + 7 * number, e2e=0.75) for number in range(20))
    second.add(finished(time=1_700_000_001.0 + 5 * number, e2e=0.5) for number in range(20))
    merged = sorted("".join([*first.portions(), *second.portions()]).splitlines())
    times = [json.loads(line)["arrival_time"] for line in merged]
    assert times == sorted(times)
