"""What the study of turns makes of the answers and logs of engines."""

import pytest

from e2e.bench.turns import figures, group, sharing_engines
from e2e.bench.turns.figures import Pair
from e2e.bench.turns.group import Step
from e2e.bench.turns.sharing_engines import BURST, LONG, SECONDS, SHORT, Answer
from headrace_engine.turns.messages import Kind

MS = 1_000_000
ALONE = {SHORT: 0.1, LONG: 2.0}


def answer(service, e2e, tokens=(1, 2, 3)):
    return Answer(service, 0.5 * e2e, e2e, tokens)


def log(*steps, said=(), heard=(), kept=(3_000,)):
    """What an engine wrote down; times are milliseconds, of messages with their kinds."""
    return {
        "steps": [[start * MS, end * MS] for start, end in steps],
        "said": [(at * MS, kind, 0, 0.0) for at, kind in said],
        "heard": [(at * MS, kind, 0, 0.0) for at, kind in heard],
        "kept": list(kept),
    }


def test_latencies_are_compared_in_multiples_of_each_service_alone():
    pairs = [Pair([answer(SHORT, 0.1), answer(LONG, 4.0)], [answer(SHORT, 0.4), answer(LONG, 2.0)])] * 2
    found = figures.compared(pairs, ALONE)
    assert found["norm_latency_turns"] == pytest.approx((1 + 2) / 2)
    assert found["norm_latency_freeforall"] == pytest.approx((4 + 1) / 2)
    assert found["norm_latency_ratio_freeforall"] == pytest.approx(1.5 / 2.5)
    assert found["norm_latency_ratio_freeforall_short"] == pytest.approx(1 / 4)
    assert found["ttft_ratio_freeforall_long"] == pytest.approx(2)
    assert found["requests"] == 4
    assert found["outputs_changed"] == 0


def test_an_answer_with_other_tokens_is_a_changed_one():
    pairs = [Pair([answer(SHORT, 0.1), answer(LONG, 4.0)], [answer(SHORT, 0.1, (1, 2)), answer(LONG, 4.0)])]
    assert figures.compared(pairs, ALONE)["outputs_changed"] == 1


def test_steps_outside_turns_are_left_out_and_those_within_may_not_overlap():
    logs = {
        SHORT: log((0, 90), (110, 120), heard=[(100, Kind.GRANT)], said=[(121, Kind.RELEASE)]),
        LONG: log((10, 80), (125, 140), heard=[(122, Kind.GRANT)]),
    }
    found = figures.of_logs(logs)
    assert found["steps_in_turns"] == 2
    assert found["overlapping_steps"] == 0
    assert found["engine_hand_over_us_p50"] == pytest.approx(5_000)
    logs[LONG]["steps"][1][0] = 115 * MS
    logs[LONG]["heard"][0] = (112 * MS, Kind.GRANT, 0, 0.0)
    assert figures.of_logs(logs)["overlapping_steps"] == 1


def test_steps_of_the_other_are_counted_while_it_is_waited_for():
    long = log(
        *((at, at + 9) for at in range(0, 100, 10)),
        heard=[(-1, Kind.GRANT)],
        said=[(105, Kind.RELEASE)],
    )
    short = log((110, 115), said=[(75, Kind.WANT)], heard=[(106, Kind.GRANT)])
    assert figures.of_logs({SHORT: short, LONG: long})["foreign_steps_waited_max"] == 2
    long["said"].insert(0, (85 * MS, Kind.KEEP, 0, 0.0))
    assert figures.of_logs({SHORT: short, LONG: long})["foreign_steps_waited_max"] == 0


def test_overlaps_are_found_whoever_else_began_between():
    steps = [Step("a", 0, 100, alone=False), Step("b", 10, 20, alone=False), Step("c", 50, 60, alone=False)]
    assert group.overlapping(steps) == 2
    assert group.overlapping([Step("a", 0, None, alone=False), Step("b", 10, 20, alone=False)]) == 0


def test_the_same_seed_makes_the_same_requests_of_both_services():
    made = sharing_engines.make_requests(3)
    assert made == sharing_engines.make_requests(3) != sharing_engines.make_requests(4)
    assert sum(request.service == SHORT for request in made) == SECONDS * BURST
    assert any(request.service == LONG for request in made)
    assert [request.at for request in made] == sorted(request.at for request in made)


def test_figures_of_asynchronous_engines_have_names_of_their_own():
    assert figures.of_async("ttft_ratio_freeforall") == "ttft_ratio_freeforall_async"
    assert figures.of_async("ttft_ratio_freeforall_low") == "ttft_ratio_freeforall_async_low"
