"""The gateway's benchmark: its stand-in engine, its clients, and how its figures are made."""

import asyncio
import json

import pytest

from e2e import ports
from e2e.bench.gateway import (
    going_on,
    pick_cost,
)
from e2e.bench.gateway import (
    load as gateway_load,
)
from e2e.bench.gateway import (
    settings as gateway_settings,
)
from e2e.bench.gateway import (
    study as gateway,
)
from e2e.bench.gateway import (
    testbed as gateway_testbed,
)
from e2e.bench.gateway import (
    waits as gateway_waits,
)
from e2e.bench.gateway.http1 import Pool, Target, chat_request, completion_request, content_length, listen
from e2e.bench.gateway.load import Sent, Side
from e2e.bench.gateway.stand_in import Limits, Request, StandIn, sidecar_report
from e2e.bench.gateway.waits import Waits
from headrace_sidecar.estimates import Estimates

SHORT = completion_request("chat", "x", 3)


class TokenCost:
    """A millisecond per token, prefilled or decoded."""

    def step_seconds(self, batch):
        return 0.001 * (batch.prefill_tokens + batch.decodes)


def engine(**limits):
    return StandIn(TokenCost(), Limits(**{"budget": 100, **limits}))


def run(stand_in, now=0.0):
    """Step until idle; finished requests."""
    done = []
    while stand_in.busy:
        now += stand_in.begin(now)
        done += stand_in.end(now)
    return done


def test_a_pick_is_timed_for_each_number_of_engines(monkeypatch):
    monkeypatch.setattr(pick_cost, "PICKS", 40)
    monkeypatch.setattr(pick_cost, "ENGINES", (2, 5))
    figures = pick_cost.measure()
    assert set(figures) == {
        f"pick_us_{each}_engines{suffix}" for each in (2, 5) for suffix in ("", "_prefixes")
    }
    assert min(figures.values()) > 0


def test_prompts_are_computed_in_order_and_in_chunks():
    stand_in = engine()
    first, second = Request(150, 1, 0.0), Request(40, 2, 0.0)
    stand_in.add(first)
    stand_in.add(second)
    assert run(stand_in) == [first, second]
    assert (first.wait, first.first_token_at) == (0.0, pytest.approx(0.19))
    assert second.wait == pytest.approx(0.1)  # behind the first chunk, beside the second
    assert second.finished_at == pytest.approx(0.191)
    assert [sample.prefill_tokens for sample in stand_in.samples] == [100, 90, 0]


def test_who_comes_in_a_step_waits_for_its_end():
    stand_in = engine()
    stand_in.add(Request(50, 1, 0.0))
    stand_in.begin(0.0)
    late = Request(10, 1, 0.02)
    stand_in.add(late)
    stand_in.end(0.05)
    run(stand_in, 0.05)
    assert late.wait == pytest.approx(0.03)


@pytest.mark.parametrize("limits", [{"slots": 1}, {"blocks": 4}])
def test_slots_and_memory_hold_requests_back(limits):
    stand_in = engine(**limits)
    first, second = Request(30, 4, 0.0), Request(30, 4, 0.0)
    stand_in.add(first)
    stand_in.add(second)
    run(stand_in)
    assert second.started_at == pytest.approx(first.finished_at)
    with pytest.raises(ValueError, match="exceed the KV cache"):
        engine(blocks=2).add(Request(30, 4, 0.0))


def test_the_report_tells_the_queue_and_what_was_learned():
    stand_in, estimates = engine(), Estimates()
    for _ in range(3):
        stand_in.add(Request(80, 2, 0.0))
    stand_in.begin(0.0)
    report = sidecar_report(stand_in, estimates, "boot")
    assert (report.running, report.waiting, report.arrivals, report.arrived_tokens) == (2, 1, 3, 240)
    assert (report.waiting_prefill_tokens, report.unfinished_prefill_tokens) == (80, 60)
    assert report.serving
    stand_in.end(0.1)
    run(stand_in, 0.1)
    assert sidecar_report(stand_in, estimates, "boot").finishes == 3
    assert estimates.rates(100).mean_prompt_tokens == pytest.approx(80)


def test_the_texts_have_a_word_per_token_and_beginnings_of_their_own():
    requests = gateway_settings.arrivals(50.0, 2.0, 1)
    texts = list(gateway_settings.texts(requests, 1))
    assert [text.count(" ") + 1 for text in texts] == [request.prompt_tokens for request in requests]
    assert len({text.split(" ", 1)[0] for text in texts}) == len(texts)


async def test_client_and_server_understand_each_other():
    (port,) = ports.free(1)
    heads = []

    def respond(connection, head, body):
        heads.append(head)
        connection.answer(json.dumps(len(body)).encode())

    async with await listen("127.0.0.1", port, respond):
        target = Target("127.0.0.1", port)
        pool = Pool(target)
        request = chat_request("chat", "x" * 100_000)
        answers = await asyncio.gather(
            *(pool.send(each) for each in (request, completion_request("c", "x", 3)))
        )
        assert [status for status, _ in answers] == [200, 200]
        assert content_length(heads[0]) == int(answers[0][1]) > 100_000
        pool.close()
        sent = await gateway_load.closed_loop(target, SHORT, 2, 0.02)
        assert sent.failures == 0
        assert sent.requests >= 2


async def test_a_lost_connection_is_a_failure():
    (port,) = ports.free(1)

    def hang_up(connection, _head, _body):
        connection.transport.abort()

    async with await listen("127.0.0.1", port, hang_up):
        sent = await gateway_load.closed_loop(
            Target("127.0.0.1", port), completion_request("c", "x", 3), 1, 5.0
        )
    assert (sent.failures, sent.latencies) == (1, [])


async def test_sides_sum_up_their_rounds():
    clock = iter([1.0, 1.5, 2.0, 2.1])
    side = Side(Target("127.0.0.1", 1), {"envoy": lambda: next(clock)})
    rounds = iter([Sent([0.001, 0.003], 0, 1.0), Sent([0.002], 0, 0.5)])

    async def run_once(_target):
        return next(rounds)

    await gateway_load.take_turns([side], 2, run_once)
    assert side.sent.milliseconds(50) == pytest.approx(2.0)
    assert side.median_rate() == pytest.approx(2.0)
    assert side.cpu_us("envoy") == pytest.approx(200_000)


def test_ratios_are_paired_by_run():
    waits = Waits()
    for balancer, means in zip(waits.runs, ([1.0, 2.0], [2.0, 4.0], [4.0, 8.0], [1.0, 2.0]), strict=True):
        waits.runs[balancer] = [[mean, mean] for mean in means]
    figures = gateway_waits.figures({"07": waits})
    assert figures["wait_ratio_least_request_07"] == figures["wait_ratio_upper_least_request_07"] == 0.5
    assert figures["wait_ratio_power_of_two_07"] == 0.25
    assert figures["wait_ratio_round_robin_07"] == 1.0
    assert figures["wait_mean_ms_sal_07"] == 1500.0


def test_the_page_and_the_picture(tmp_path):
    waits = {load: Waits() for load in gateway_waits.LOADS}
    for each in waits.values():
        for place, balancer in enumerate(each.runs, 1):
            each.runs[balancer] = [[0.01 * place], [0.011 * place]]
    figures = gateway_waits.figures(waits)
    found = {**figures, **{f"simulated_{key}": value for key, value in figures.items()}, "added_p50_ms": 0.5}
    gateway.draw(waits, waits, tmp_path)
    gateway.page(found, tmp_path)
    text = (tmp_path / "gateway.md").read_text()
    assert (tmp_path / "gateway.svg").exists()
    assert "gateway.svg" in text
    row = next(line for line in text.splitlines() if line.startswith("| RoundRobin"))
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["42", "0.25", "0.25"]
    assert "stand-ins" in text


def test_every_balancer_visits_every_service():
    seen = {gateway_waits._balancer(service, run) for service in range(4) for run in range(4)}
    assert seen == set(gateway_settings.BALANCERS)
    assert len({gateway_waits._balancer(0, run) for run in range(4)}) == 4


@pytest.mark.envoy
async def test_streams_that_stepped_back_go_on_one_after_another(monkeypatch, capsys):
    monkeypatch.setattr(going_on, "STREAMS", 20)
    monkeypatch.setattr(going_on, "ENGINES", 3)
    figures = await going_on.measure(print)
    assert 0 < figures["going_on_ms"] <= figures["going_on_p99_ms"]
    assert "going_on_ms" in capsys.readouterr().out


def test_a_rig_that_cannot_start_says_why(tmp_path):
    with gateway_testbed.start_testbed(tmp_path) as testbed:
        testbed.start("picker", ["/bin/sh", "-c", "echo no such thing >&2; exit 1"])
        testbed.processes["picker"].wait()
        with pytest.raises(gateway_testbed.TestbedError, match="no such thing"):
            asyncio.run(testbed.ready(1))
    assert testbed.processes == {}
