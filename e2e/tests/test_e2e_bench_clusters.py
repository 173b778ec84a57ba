"""The study of clusters: a run from its plan to its figures, and what is made of many runs."""

import pytest

from e2e.bench.clusters import cases, study
from e2e.bench.clusters.cases import WAYS, ClusterCase, ServiceEngines
from e2e.bench.placement.instances import Instance, draw
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's and torch's own
TINY = Instance(1, 2, 3, 1.0, requests=80, seed=7)  # three services on two GPUs


@pytest.mark.parametrize("way", WAYS)
def test_services_are_placed_and_served(way):
    found = cases.run_case(ClusterCase(TINY, way, 2))
    assert found["unplaced"] == (way == "apart")
    assert bool(found["shared_gpus"]) == (way != "apart")
    assert found["gpus"] == 2
    assert found["attainment_2"] <= found["attainment_5"] <= found["attainment_10"]
    assert found["attainment_worst_service"] <= found["attainment_5"]
    assert found["norm_latency"] <= found["norm_latency_p99"]


def test_who_has_no_engine_is_counted_and_has_nothing_in_time():
    found = cases.run_case(ClusterCase(TINY, "apart", 2))
    assert found["attainment_worst_service"] == 0
    assert found["attainment_5"] == pytest.approx(2 / 3, abs=0.1)


def test_a_plan_may_be_made_of_lengths_that_are_not_those_that_come():
    exact, told = (cases.run_case(ClusterCase(TINY, "pairs", 2, noise=noise)) for noise in (0.0, 1.0))
    assert exact["expected_latency"] != told["expected_latency"]


class Engine:
    """One that is done with a request when it is told."""

    def __init__(self):
        self.held = []
        self.next_event_at = 1.0

    def add(self, arrival, now):
        self.held.append((arrival, now))

    def advance(self):
        return [self.held.pop()]


def test_a_request_goes_to_the_engine_that_has_fewest():
    engines = [Engine(), Engine()]
    service = ServiceEngines(engines)
    for number in range(3):
        service.add(Arrival(0.0, 1, 1), float(number))
    assert [len(engine.held) for engine in engines] == [2, 1]
    service.advance()
    service.advance()
    service.add(Arrival(0.0, 1, 1), 3.0)
    assert [len(engine.held) for engine in engines] == [1, 1]
    assert service.next_event_at == 1.0


def made_up(way=None, **changed):
    """Runs that all have the same figures, but for `changed` of one way."""
    usual = {**dict.fromkeys(study.METRICS, 1.0), "unplaced": 0}
    return study.Study({case: usual | (changed if case.way == way else {}) for case in study.everything()})


def test_ways_are_compared_where_both_have_all_services():
    figures = study.figures(made_up("apart", norm_latency=4.0))
    for setting in study.SETTINGS:
        assert figures[f"norm_latency_ratio_apart_{setting.key}"] == pytest.approx(0.25)
        assert figures[f"norm_latency_ratio_time_sliced_{setting.key}"] == pytest.approx(1.0)
    assert figures["worst_ratio_apart"] == pytest.approx(0.25)
    figures = study.figures(made_up("seallm", unplaced=1))
    assert not any(name.startswith("norm_latency_ratio_seallm") for name in figures)


def test_the_gpus_that_are_needed_are_the_fewest_down_to_which_all_have_enough_in_time():
    found = dict(made_up().found)
    lost = study.SIZES[2]
    for seed in range(study.SEEDS):
        found[study.FEWER.case("apart", seed, lost)] = {
            **found[study.FEWER.case("apart", seed, lost)],
            "attainment_worst_service": 0.8,
        }
    figures = study.figures(study.Study(found))
    assert figures["gpus_needed_apart"] == study.SIZES[1]
    assert figures[f"gpus_needed_{study.OURS}"] == study.SIZES[-1]


def test_gpus_are_saved_down_to_where_fewer_requests_are_in_time_than_apart():
    found = dict(made_up("apart", attainment_5=1 + study.AS_MANY / 2).found)
    for seed in range(study.SEEDS):
        lost = study.FEWER.case("pairs", seed, study.SIZES[3])
        found[lost] = {**found[lost], "attainment_5": 1 - study.AS_MANY}
    figures = study.figures(study.Study(found))
    assert figures[f"gpus_pairs_as_good_as_apart_on_{study.SIZES[0]}"] == study.SIZES[2]
    assert figures[f"gpus_fours_as_good_as_apart_on_{study.SIZES[0]}"] == study.SIZES[-1]
    assert figures["gpus_saved_percent"] < figures["gpus_saved_percent_fours"]


def test_the_page_has_every_way_of_every_setting():
    page = study.page(made_up())
    for way, name in study.NAMES.items():
        shrunk = len(study.SIZES) if way in study.SHRUNK else 0
        assert page.count(name) == len(study.SETTINGS) + shrunk


def test_noise_leaves_lengths_that_a_model_can_have():
    services, _ = draw(TINY)
    for noise in (0.5, 3.0):
        for service in services:
            told = cases._misjudge(service, noise, number=0)
            for request in told.requests:
                assert 1 <= request.output_tokens <= service.longest - request.prompt_tokens
