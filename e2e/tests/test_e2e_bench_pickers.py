"""The study of several pickers: its figures, and that Envoy knows both."""

from e2e.bench.gateway.testbed import HOST
from e2e.bench.pickers import failover, study
from e2e.bench.pickers.failover import FIRST, SECOND, Missed
from e2e.bench.report import intervals
from headrace_gateway.xds.bootstrap import Bootstrap, bootstrap


def test_the_worst_workload_counts_and_each_is_told():
    ratios = {
        ("conversation", 2): intervals.ratio([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
        ("code-poisson", 2): intervals.ratio([1.1, 1.1, 1.1], [1.0, 1.0, 1.0]),
        ("conversation", "untold"): intervals.ratio([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]),
    }
    figures = study.simulated_figures(ratios)
    assert figures["ttft_ratio_2"] == figures["ttft_ratio_2_code_poisson"] == 1.1
    assert figures["ttft_ratio_untold"] == 2.0
    assert "ttft_ratio_2_conversation_low" in figures


def test_the_worst_time_counts():
    figures = study.measured_figures(
        {"killed": [Missed(0.1, 3, 0), Missed(0.4, 1, 1)], "stalled": [Missed(0.0, 0, 2)]}
    )
    assert figures["killed_least_request_seconds"] == figures["failover_least_request_seconds"] == 0.4
    assert figures["killed_least_request_requests"] == 3
    assert figures["failed_requests"] == 3


def test_envoy_is_told_of_both_pickers_for_picks_and_for_configuration():
    document = bootstrap(Bootstrap(picker_host=HOST))
    failover._ask_both(document)
    told = {
        cluster["name"]: [
            host["endpoint"]["address"]["socket_address"]["address"]
            for group in cluster["load_assignment"]["endpoints"]
            for host in group["lb_endpoints"]
        ]
        for cluster in document["static_resources"]["clusters"]
        if cluster["name"] in {"picker", "xds"}
    }
    assert told["picker"] == told["xds"] == [FIRST, SECOND]
