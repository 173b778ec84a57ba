"""The demo measures what engines can take, then sends the same requests under every policy."""

from itertools import pairwise

import pytest

from e2e.demo import services, workload
from e2e.demo.metrics import Sample
from e2e.demo.target import SAMPLES

CAPACITY = {"chat": 3.0, "code": 5.0}


def test_every_policy_gets_the_same_requests_with_other_texts():
    parts = [workload.calls(CAPACITY, turn) for turn in range(len(workload.POLICIES))]
    sent = [[(c.at, c.service, c.prompt_tokens, c.output_tokens) for c in part] for part in parts]
    assert sent[0]
    assert sent == [sent[0]] * len(workload.POLICIES)
    assert len({call.text_seed for part in parts for call in part}) == len(parts) * len(sent[0])


def test_bursts_are_beyond_capacity_and_their_mean_is_not():
    measured = [each.at for each in workload.arrivals("code", 5.0) if each.at >= workload.LEAD]
    assert len(measured) / workload.MEASURED == pytest.approx(5.0 * workload.TRAFFIC["code"].load, rel=0.05)
    burst = [at for at in measured if at < workload.LEAD + workload.BURST_SECONDS]
    assert len(burst) == len(measured) / workload.BURSTS
    assert len(burst) / workload.BURST_SECONDS > 3 * 5.0


def test_where_nothing_shall_queue_requests_come_evenly_and_far_below_capacity():
    times = [each.at for each in workload.arrivals("chat", 3.0) if each.at >= workload.LEAD]
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) == pytest.approx(min(gaps))
    assert len(times) / workload.MEASURED < 3.0 / 2


def test_requests_are_in_flight_when_the_policy_changes():
    for service, capacity in CAPACITY.items():
        assert sum(each.at < workload.LEAD for each in workload.arrivals(service, capacity)) >= 2


def test_slow_engines_are_sent_fewer_requests():
    assert len(workload.arrivals("code", 1.0)) < len(workload.arrivals("code", 5.0)) / 4
    assert workload.arrivals("code", 0.0)  # never none


def test_capacity_counts_what_was_finished_while_the_engines_were_full():
    ends = [1.0, workload.WARM_UP, 5.0, workload.CAPACITY_SECONDS - 0.1, workload.CAPACITY_SECONDS, 20.0]
    samples = [Sample("code", end - 0.5, e2e=0.5) for end in ends]
    samples += [Sample("chat", 4.0, e2e=0.5), Sample("code", 4.0, error="HTTP 503")]
    counted = workload.CAPACITY_SECONDS - workload.WARM_UP
    assert workload.capacity(samples, "code") == pytest.approx(3 / counted)
    assert workload.capacity(samples, "chat") == pytest.approx(1 / counted)


def test_every_request_fits_the_sample_services():
    calls = workload.calls({"chat": 20.0, "code": 20.0}, 0)
    assert max(each.prompt_tokens + each.output_tokens for each in calls) <= 2048


def test_the_walk_takes_every_policy_from_the_one_that_the_samples_start_with():
    assert workload.POLICIES == ("FCFS", "LARRY", "EconoServe", "AccelGen", "DoublingBudget")
    assert {manifest["spec"]["scheduling"]["policy"] for manifest in services.load(SAMPLES).values()} == {
        workload.POLICIES[0]
    }


def test_only_the_measured_part_of_a_service_is_compared():
    times = [0.0, workload.LEAD - 0.1, workload.LEAD, workload.PART]
    samples = [Sample(service, at) for at in times for service in ("chat", "code")]
    assert [each.sent for each in workload.measured(samples, "code")] == times[2:]
