"""The demo sends the same requests under every policy; each sample counts for the one it was sent under."""

from e2e.demo import services, workload
from e2e.demo.metrics import Sample, Targets
from e2e.demo.target import SAMPLES


def test_every_policy_gets_the_same_requests_with_other_texts():
    calls = workload.calls()
    parts = [
        [
            (round(c.at - turn * workload.PART, 6), c.service, c.prompt_tokens, c.output_tokens)
            for c in calls
            if turn * workload.PART <= c.at < (turn + 1) * workload.PART
        ]
        for turn in range(4)
    ]
    assert parts[0]
    assert parts == [parts[0]] * 4
    assert len({c.text_seed for c in calls}) == len(calls) == 4 * len(parts[0])


def test_slow_engines_are_sent_an_even_part_of_the_requests():
    probes = workload.probes()
    assert {call.service for call in probes} == {"chat", "code"}
    tokens = sum(call.output_tokens for call in probes)

    def share(tokens_per_second):
        e2e = tokens / tokens_per_second
        return workload.share(
            [Sample(c.service, 0.0, e2e=e2e, output_tokens=c.output_tokens) for c in probes]
        )

    assert share(workload.ENOUGH / 4) == 0.25
    assert share(2 * workload.ENOUGH) == 1.0
    assert share(0.001) == workload.LEAST_SHARE
    every, some = workload.calls(), workload.calls(0.25)
    assert set(some) < set(every)
    assert len(some) == len(every) // 4 // 4 * 4


def test_every_request_fits_the_sample_services():
    assert max(c.prompt_tokens + c.output_tokens for c in workload.calls()) <= 2048


def test_the_walk_takes_every_policy_from_the_one_that_the_samples_start_with():
    assert workload.POLICIES == ("FCFS", "LARRY", "EconoServe", "AccelGen")
    assert {manifest["spec"]["scheduling"]["policy"] for manifest in services.load(SAMPLES).values()} == {
        workload.POLICIES[0]
    }


def test_phases_follow_the_clock():
    part, lead = workload.PART, workload.LEAD
    ends = [0.0, lead, part, part + lead, 2 * part, 3 * part + lead, 4 * part]
    assert [workload.phase(at) for at in ends] == [
        "warm-up",
        "under FCFS",
        "changing to LARRY",
        "under LARRY",
        "changing to EconoServe",
        "under AccelGen",
        "last answers",
    ]


def test_only_the_measured_parts_are_compared():
    part, lead = workload.PART, workload.LEAD
    times = [1.0, lead, part + 1, part + lead, 2 * part - 1, 3 * part + lead]
    samples = [Sample("chat", at, ttft=0.1, tpot=0.1, max_itl=0.1, e2e=1.0) for at in times]
    rows = workload.rows(samples, {"chat": Targets(), "code": Targets()})
    counts = {(service, policy): summary.requests for service, policy, summary in rows if summary.requests}
    assert counts == {("chat", "FCFS"): 1, ("chat", "LARRY"): 2, ("chat", "AccelGen"): 1}
    assert len(rows) == 8
