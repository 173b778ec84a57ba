"""The walk: capacity, then for each policy prediction, patch, requests; the table says what came of it."""

import contextlib
import io
import math

import pytest
from rich.console import Console

from e2e.demo import table, walk, workload
from e2e.demo.kube import KubeError
from e2e.demo.metrics import Sample, Targets, summarise
from e2e.demo.services import Change
from e2e.demo.steps import StageError, Steps
from e2e.demo.walk import Part, Walker, make_rows, take_walk

TARGETS = {"chat": Targets(ttft=1.0), "code": Targets(ttft=1.0)}
TTFT = {"FCFS": 2.0, "LARRY": 0.5, "EconoServe": 1.0, "AccelGen": 1.9, "DoublingBudget": 1.8}


class Kube:
    """Every service has two engines."""

    def get(self, *_):
        return {"spec": {"replicas": 2}}


class Oracle:
    """Predicts what `TTFT` says, for `code`."""

    def predict(self, name, arrivals, policies):
        def ttft(policy):
            return TTFT[policy] if name == "code" else 0.1

        return [
            [Sample(name, each.at, ttft(policy), 0.0, 0.0, 3.0) for each in arrivals] for policy in policies
        ]


@pytest.fixture
def story(monkeypatch):
    """What happens, in order; the engines do what was predicted, but half as fast."""
    told = []
    current = {"policy": "FCFS"}

    async def capacity(_url, engines):
        told.append("capacity")
        assert engines == {"chat": 2, "code": 2}
        ends = [workload.WARM_UP + number / 4 for number in range(20)]
        return [Sample(name, end - 1, e2e=1.0) for end in ends for name in engines]

    async def replay(_url, calls, progress):
        told.append("requests")
        await switched()
        found = [
            Sample(
                call.service,
                call.at,
                2 * TTFT[current["policy"]] if call.service == "code" else 0.2,
                0.0,
                0.0,
                3.0,
            )
            for call in calls
        ]
        progress.samples += found
        return found

    async def switched():
        while (
            len([each for each in told if each == "requests"])
            > 1 + sum("patch" in each for each in told) // 2
        ):
            await walk.asyncio.sleep(0)

    def schedule(_kube, name, scheduling):
        current["policy"] = scheduling["policy"]
        told.append(f"patch {name} {scheduling['policy']}")
        return Change(1.2, 0.6)

    monkeypatch.setattr(walk, "measure_capacity", capacity)
    monkeypatch.setattr(walk, "replay", replay)
    monkeypatch.setattr(walk, "SWITCH_AT", 0.0)
    monkeypatch.setattr(walk.services, "schedule", schedule)
    monkeypatch.setattr(walk, "learn", lambda _kube, name: told.append(f"learn {name}") or name)
    return told


def walker(predictor=None):
    return Walker("", Kube(), TARGETS, predictor or Oracle(), Steps())


async def test_each_policy_is_predicted_then_patched_while_requests_are_sent(story, capsys):
    found = await take_walk(walker())
    assert story[:4] == ["capacity", "learn chat", "learn code", "requests"]
    patches = [each for each in story if each.startswith("patch")]
    assert [each.split()[-1] for each in patches] == [
        policy for policy in workload.POLICIES[1:] for _ in "ab"
    ]
    assert list(found.changes) == list(workload.POLICIES[1:])
    said = capsys.readouterr().out
    assert "measured capacity: chat " in said
    before, after = said.split("kubectl patch to LARRY, on every engine after: ")
    assert (
        "predicted for LARRY: chat mean TTFT 100 ms (x 1.00 of FCFS's), SLO met 100%; code mean TTFT"
        in before
    )
    assert "code mean TTFT 500 ms (x 0.25 of FCFS's), SLO met 100%" in before
    assert after.startswith("chat 0.60 s (1.20 s with kubectl's own start); code 0.60 s")
    assert "measured under LARRY: chat mean TTFT 200 ms (x 1.00 of FCFS's), SLO met 100%; code" in after
    assert said.count("kubectl patch to") == len(workload.POLICIES) - 1


async def test_the_walk_goes_on_without_a_prediction_and_says_so(story, capsys):
    class Blind:
        def predict(self, *_):
            raise KubeError("the sidecar has seen too few steps")

    found = await take_walk(walker(Blind()))
    assert "no prediction for LARRY: KubeError: the sidecar has seen too few steps" in capsys.readouterr().out
    rows = make_rows(found.parts)
    assert math.isnan(rows[1].predicted_ratio)
    assert "predicted" not in table.verdict("t", [row for row in rows if row.service == "code"])


async def test_a_request_that_fails_before_the_walk_ends_it(story, monkeypatch):
    async def capacity(*_):
        return [Sample("code", 0.0, error="HTTP 503")]

    monkeypatch.setattr(walk, "measure_capacity", capacity)
    with pytest.raises(StageError, match="HTTP 503"):
        await take_walk(walker())


def part(policy, measured, predicted):
    def summary(ttft):
        return summarise([Sample("code", 5.0, ttft, 0.0, 0.0, 3.0)], TARGETS["code"])

    ttft = [measured + number / 100 for number in range(10)]
    return Part(
        policy, {"code": (summary(predicted), summary(1.0))}, {"code": summary(measured)}, {"code": ttft}
    )


def told(*parts):
    rows = make_rows([part("FCFS", 2.0, 1.0), *parts])
    return rows, table.verdict("70% of capacity, in bursts", rows)


def test_the_table_has_prediction_and_measurement_side_by_side():
    rows, said = told(part("LARRY", 0.8, 0.5), part("AccelGen", 1.5, 0.4))
    assert said.startswith("code (70% of capacity, in bursts): LARRY answered soonest, mean TTFT x 0.40 of")
    assert said.endswith("of FCFS's, predicted x 0.50.")
    out = io.StringIO()
    Console(file=out, width=110).print(table.comparison(rows))
    printed = " ".join(out.getvalue().replace("│", " ").split())
    assert "code LARRY 1 0 500 ms → 800 ms x 0.50 → x 0.40 500 ms → 800 ms 100% → 100%" in printed
    assert "…" not in printed


def test_a_run_that_shows_no_gain_is_told_as_one_whatever_was_predicted():
    _, said = told(part("LARRY", 2.0, 0.3), part("AccelGen", 4.0, 0.3))
    assert said.endswith("no policy answered clearly sooner than FCFS in this run; stay with it.")


@pytest.mark.parametrize(
    ("new", "sooner"),
    [
        ([0.5, 0.6, 0.7, 0.8], True),
        ([0.99, 1.0, 1.01, 0.99], False),  # by so little that it may be chance
        ([0.1, 3.0, 0.2, 0.5], False),  # one waits for the others
        ([0.5, math.nan, math.nan, math.nan], False),
    ],
)
def test_a_gain_is_one_by_more_than_chance(new, sooner):
    assert walk.is_sooner(new, [1.0, 1.0, 1.0, 1.0]) == sooner


def test_nothing_answered_is_no_gain():
    nothing = Part("LARRY", {}, {"code": table.NOTHING}, {"code": [math.nan] * 10})
    _, said = told(nothing)
    assert "stay with it" in said


async def test_clients_keep_all_engines_full_until_the_time_is_over(monkeypatch):
    from e2e.demo import capacity

    clock = {"now": 100.0}
    asked = []

    async def replay(_url, calls, _progress):
        [call] = calls
        asked.append(call)
        await capacity.asyncio.sleep(0)
        clock["now"] += 0.5
        return [Sample(call.service, 0.0, e2e=0.5)]

    monkeypatch.setattr(capacity, "replay", replay)
    monkeypatch.setattr(capacity.time, "monotonic", lambda: clock["now"])
    samples = await capacity.measure_capacity("", {"code": 1})
    assert len(samples) == len(asked)
    assert {each.sent < workload.CAPACITY_SECONDS for each in samples} == {True}
    assert len({call.text_seed for call in asked}) == len(asked)
    with contextlib.suppress(StopIteration):
        assert asked[0].prompt_tokens == next(workload.lengths("code")).prompt_tokens
