"""The study of traffic in sums: what is known of requests, and what plans found with that are worth."""

from e2e.bench import traffic_sums
from e2e.bench.placement.instances import Instance, draw
from headrace_engine.contracts.traffic import WINDOW_SECONDS

FEW = Instance(1, 4, 2, 1.0, requests=120, seed=1)


def test_as_many_requests_are_made_as_there_are():
    services, _ = draw(FEW)
    told = traffic_sums.from_sums(services)
    for made in (told, traffic_sums.spread(told)):
        assert [len(each.requests) for each in made] == [len(each.requests) for each in services]
        assert [each.requests for each in made] != [each.requests for each in services]


def test_spread_requests_stay_in_their_windows():
    services = traffic_sums.from_sums(draw(FEW)[0])
    for told, even in zip(services, traffic_sums.spread(services), strict=True):
        windows = [[each.at // WINDOW_SECONDS for each in service.requests] for service in (told, even)]
        assert windows[0] == windows[1]


def test_plans_are_scored_by_the_requests_themselves():
    found = traffic_sums.compare(FEW)
    assert found["known"] == found["told"] > found["even"]
    assert found["even_expected"] > found["even"]
