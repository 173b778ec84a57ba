"""The demo's two halves carry the same requests, and each sample lands in the half it was sent in."""

from e2e.demo import workload
from e2e.demo.metrics import Sample, Targets


def test_both_halves_send_the_same_requests_with_other_texts():
    calls = workload.calls()
    first = [c for c in calls if c.at < workload.SWITCH_AT]
    second = [c for c in calls if c.at >= workload.SWITCH_AT]
    assert [
        (round(c.at + workload.SWITCH_AT, 6), c.service, c.prompt_tokens, c.output_tokens) for c in first
    ] == [(round(c.at, 6), c.service, c.prompt_tokens, c.output_tokens) for c in second]
    assert len({c.text_seed for c in calls}) == len(calls)


def test_every_request_fits_the_sample_services():
    assert max(c.prompt_tokens + c.output_tokens for c in workload.calls()) <= 2048


def test_phases_follow_the_clock():
    ends = [
        0.0,
        workload.LEAD,
        workload.SWITCH_AT,
        workload.SWITCH_AT + workload.LEAD,
        2 * workload.SWITCH_AT,
    ]
    assert [workload.phase(at) for at in ends] == [
        "warm-up",
        "under FCFS",
        "changing the policy",
        "under LARRY",
        "last answers",
    ]


def test_only_the_measured_parts_are_compared():
    times = [1.0, workload.LEAD, workload.SWITCH_AT + 1, workload.SWITCH_AT + workload.LEAD + 1, 89.0]
    samples = [Sample("chat", at, ttft=0.1, mean_tbt=0.1, max_tbt=0.1, jct=1.0) for at in times]
    rows = workload.rows(samples, {"chat": Targets(), "code": Targets()})
    assert [(service, policy, summary.requests) for service, policy, summary in rows] == [
        ("chat", "FCFS", 1),
        ("chat", "LARRY", 2),
        ("code", "FCFS", 0),
        ("code", "LARRY", 0),
    ]
