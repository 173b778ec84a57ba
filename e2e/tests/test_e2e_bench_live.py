"""Policies on real engines: the plan, what figures say, what is kept, and what predictions are made from."""

import dataclasses
import json
import os
import types

import pytest

from e2e.bench.live import calibration, cases, figures, forecast, journal, measure, page, servers, study
from e2e.bench.live.calibration import FEW, MANY, ONE, Fitted, Phase
from e2e.bench.live.cases import CONTESTANTS, DEVICES, TUNED, Contestant, Run
from e2e.bench.live.clients import Asker
from e2e.bench.live.figures import Found, Served
from e2e.bench.live.journal import Journal
from e2e.bench.live.step_table import StepTable
from e2e.demo.replay import Call
from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import ME
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.host import HostTime

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's and torch's own

CPU = DEVICES["cpu"]
CODE = CPU.workloads[0]
TINY = study.tiny(CPU)
FITTED = Fitted(
    StepTable(sizes=(1, 16, 2048), seconds=(0.02, 0.028, 2.05), per_work=0.0, per_context=1e-6),
    HostTime(per_step=1e-3, intake=5e-3, per_output=5e-4),
    Linear(ME, fixed=0.02, per_prefill=1e-3, per_decode=5e-4, per_context=1e-6),
)


@pytest.mark.parametrize("workload", CPU.workloads, ids=lambda workload: workload.name)
def test_any_number_of_requests_has_about_the_same_mean_size(workload):
    def mean(count):
        pool = workload.pool(count)
        return sum(each.prompt_tokens + 4 * each.output_tokens for each in pool) / count

    assert mean(60) == pytest.approx(mean(400), rel=0.06)


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_every_request_fits_into_the_engine(device):
    for workload in device.workloads:
        settings = forecast.settings_for(device, workload, Contestant(cases.DEFAULT, None))
        assert not any(
            settings.refusal(each.prompt_tokens, each.output_tokens) for each in workload.pool(2000)
        )


def test_seeds_send_the_same_requests_at_other_times_and_at_the_same_rate():
    [first, second] = [CODE.arrivals(5.0, seed) for seed in (0, 1)]
    assert [each.at for each in first] != [each.at for each in second]
    assert sorted(map(size, first)) == sorted(map(size, second))
    assert len(first) == 5.0 * CODE.seconds


def size(request):
    return request.prompt_tokens, request.output_tokens


def test_each_repetition_has_every_run_once_in_an_order_of_its_own():
    plan = cases.plan(CPU, "code")
    assert len(set(plan)) == len(plan) == CPU.repetitions * len(CPU.loads) * len(CONTESTANTS)
    rounds = [[run for run in plan if run.repetition == number] for number in range(CPU.repetitions)]
    assert plan == [run for each in rounds for run in each]
    orders = {tuple((run.load, run.contestant) for run in each) for each in rounds}
    assert len(orders) == CPU.repetitions
    assert plan == cases.plan(CPU, "code")


def test_contestants_of_one_load_take_turns_one_right_after_another():
    plan = cases.plan(CPU, "kv")
    for start in range(0, len(plan), len(CONTESTANTS)):
        together = plan[start : start + len(CONTESTANTS)]
        assert len({(run.load, run.repetition) for run in together}) == 1


def test_stock_gets_no_policy_and_policies_get_their_budget():
    assert Contestant(cases.DEFAULT, None).document(CODE) is None
    assert Contestant(TUNED, 256).document(CODE) is None
    larry = Contestant("larry", 256).document(CODE)
    assert (larry.policy, larry.step_budget.mode, larry.step_budget.tokens) == ("LARRY", "Fixed", 256)
    assert Contestant("accelgen", None).document(CODE).step_budget.mode == "SLO"
    assert larry.slo.e2e_scale_percent == 100 * CODE.e2e_scale


def test_only_tuned_stock_has_its_budget_on_the_command_line():
    default = forecast.settings_for(CPU, CODE, Contestant(cases.DEFAULT, None))
    assert forecast.settings_for(CPU, CODE, Contestant(TUNED, 256)).max_num_batched_tokens == 256
    assert forecast.settings_for(CPU, CODE, Contestant("larry", 256)) == default
    assert default.num_blocks == CODE.blocks


def test_a_budget_below_the_most_requests_of_a_step_lowers_that_too():
    small = forecast.settings_for(CPU, CODE, Contestant(TUNED, 64))
    assert (small.max_num_batched_tokens, small.max_num_seqs) == (64, 64)
    assert forecast.settings_for(CPU, CODE, Contestant(TUNED, 512)).max_num_seqs == CPU.settings.max_num_seqs


def served(at, e2e, ttft=0.1):
    return Served(at, ttft, 0.02, e2e, alone=1.0)


def test_of_settings_with_as_good_a_mean_e2e_the_one_with_the_lowest_mean_ttft_is_taken():
    found = {
        Contestant(TUNED, 64): {"e2e_mean": 2.00, "ttft_mean": 0.9},
        Contestant(TUNED, 128, 0.05): {"e2e_mean": 2.05, "ttft_mean": 0.3},
        Contestant(TUNED, 256): {"e2e_mean": 2.07, "ttft_mean": 0.2},
    }
    assert forecast.best(found) == Contestant(TUNED, 128, 0.05)


@pytest.mark.parametrize(("name", "tried"), [(TUNED, {0.0, 0.02, 0.05, 0.1}), ("larry", {0.0})])
def test_a_watermark_is_searched_for_stock_where_kv_binds(name, tried, monkeypatch):
    seen = set()

    def predict(device, fitted, workload, contestant, arrivals):
        seen.add(contestant)
        return {"e2e_mean": 1.0, "ttft_mean": contestant.budget}

    monkeypatch.setattr(forecast, "predict", predict)
    assert forecast.tune(CPU, FITTED, cases.named(CPU.workloads, "kv"), name, 2.0).budget == min(CPU.budgets)
    assert {each.watermark for each in seen} == tried
    assert {each.budget for each in seen} == set(CPU.budgets)


@pytest.mark.parametrize(
    ("device", "workload"), [(device, each) for device in DEVICES.values() for each in device.workloads]
)
def test_each_server_has_kv_for_its_longest_sequence_and_each_request_is_shorter(device, workload):
    longest = device.settings.max_model_len
    usable = workload.blocks - 1  # one is vLLM's null block
    assert usable * device.settings.block_size >= longest
    assert all(each.prompt_tokens + each.output_tokens < longest for each in workload.pool(2000))


def test_requests_of_the_warm_up_do_not_count():
    figures_of_run = figures.of_run([served(0.5, 90.0), served(2.0, 4.0), served(4.0, 6.0)], 1.0, 5.0)
    assert figures_of_run["requests"] == 2
    assert figures_of_run["e2e_mean"] == 5.0
    assert figures_of_run["met"] == 0.5
    assert figures_of_run["goodput"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="warm-up"):
        figures.of_run([served(0.5, 1.0)], 1.0, 5.0)


def test_a_run_in_which_no_request_was_in_time_still_has_a_ratio():
    assert figures.of_run([served(2.0, 9.0), served(4.0, 9.0)], 1.0, 5.0)["goodput"] > 0


def found(measured, predicted):
    """Runs of one workload and load; `measured` gives each run's TTFT, all else follows it."""
    runs = cases.plan(TINY, "code")

    def entries(ttft):
        return {
            journal.key(run): {figure: ttft(run) for figure in (*figures.RATIOS.values(), "met", "disturbed")}
            for run in runs
        }

    return Found(TINY, entries(measured), entries(predicted))


def test_ratios_pair_runs_of_one_repetition():
    slow = {0: 1.0, 1: 10.0}

    def ttft(run):
        return slow[run.repetition] * (0.5 if run.contestant == "larry" else 1.0)

    told = figures.all_figures(found(ttft, ttft))
    assert told["ttft_ratio_larry_code_09"] == 0.5
    assert told["ttft_ratio_larry_code_09_high"] == 0.5
    assert told["predicted_ttft_ratio_larry_code_09"] == 0.5
    assert told["goodput_ratio_accelgen_code_09_low"] == 1.0
    assert told["prediction_error_median_percent"] == 0.0


def test_the_error_is_of_absolute_times_not_of_ratios():
    told = figures.all_figures(found(lambda _: 1.0, lambda _: 0.8))
    assert told["predicted_ttft_ratio_larry_code_09"] == 1.0
    assert told["prediction_error_median_percent"] == 20.0
    assert told["prediction_bias_ttft_median_percent"] == -20.0


def test_a_repetition_counts_once_all_contestants_have_finished_it():
    whole = found(lambda _: 1.0, lambda _: 1.0)
    gone = journal.key(Run("code", 0.9, 1, "accelgen"))
    part = dataclasses.replace(
        whole, measured={key: entry for key, entry in whole.measured.items() if key != gone}
    )
    assert part.complete("code", 0.9) == [0]
    assert figures.all_figures(part)["ttft_ratio_larry_code_09_seeds"] == 1
    assert [journal.key(run) for run in figures.left(TINY, part.measured)] == [gone]


def test_how_much_an_engine_was_disturbed_is_told():
    told = figures.all_figures(found(lambda run: 0.1 * (1 + run.repetition), lambda _: 1.0))
    assert (told["disturbed_percent_median"], told["disturbed_percent_worst"]) == (15.0, 20.0)


def test_the_page_shows_what_was_measured_beside_what_was_predicted(tmp_path):
    whole = found(lambda run: 0.5 if run.contestant == "larry" else 1.0, lambda _: 1.25)
    text = page.write("live", whole, figures.all_figures(whole), tmp_path).read_text()
    assert "| larry" in text
    assert "0.50; 1.00" in text
    assert "1 s (+25 %)" in text
    assert (tmp_path / "live.svg").exists()


def test_what_was_found_is_found_again_and_a_line_that_was_cut_off_is_not(tmp_path):
    kept = Journal(tmp_path / "deep/live.jsonl")
    assert kept.read("run") == {}
    kept.write("run", "a", {"x": 1.0})
    kept.write("prediction", "a", {"x": 2.0})
    kept.write("run", "b", {"x": 3.0})
    with kept.path.open("a") as file:
        file.write(json.dumps({"kind": "run", "key": "c", "entry": {}})[:-5])
    assert kept.read("run") == {"a": {"x": 1.0}, "b": {"x": 3.0}}
    assert kept.read("prediction") == {"a": {"x": 2.0}}


def test_another_setting_begins_anew(tmp_path):
    assert journal.place(CPU, tmp_path) == journal.place(CPU, tmp_path)
    assert journal.place(CPU, tmp_path) != journal.place(dataclasses.replace(CPU, clients=1), tmp_path)


def test_what_was_fitted_is_read_as_it_was_written():
    assert calibration.read(json.loads(json.dumps(calibration.entry(FITTED)))) == FITTED


def phase(clients, answers, tokens, *, between, front=0.0, steps=500):
    return Phase(
        clients, [StepSample(0, 0, 1, 10, 0.02)] * steps, 0.02 * steps + between, answers, tokens, front
    )


def test_steps_are_taken_to_be_as_slow_as_in_the_last_runs_that_tell_of_them(tmp_path):
    kept = Journal(tmp_path / "journal")
    assert study.recent_slowness(kept) == 1.0
    for number, slowness in enumerate([2.0, 1.3, None, 1.1, 1.2, 1.5, 1.4]):
        kept.write("run", f"{number}", {} if slowness is None else {"slowness": slowness})
    assert study.recent_slowness(kept) == 1.3


def test_host_time_is_what_steps_leave_and_what_the_front_end_uses():
    host = HostTime(per_step=0.001, intake=0.004, per_output=0.0005)
    answer = host.intake + host.per_output
    found = calibration.host_time(
        [
            phase(MANY, 40, 400, between=0.5, front=40 * 0.01 + 400 * host.per_output),
            phase(MANY, 40, 4000, between=0.5, front=40 * 0.01 + 4000 * host.per_output),
            phase(ONE, 20, 140, steps=140, between=20 * answer + 140 * 0.002),
            phase(ONE, 5, 500, steps=500, between=5 * answer + 500 * 0.002),
            phase(FEW, 9, 9, between=99.0, front=99.0),
        ]
    )
    assert dataclasses.asdict(found) == pytest.approx(dataclasses.asdict(host))


def test_a_host_that_seems_to_take_less_than_nothing_takes_nothing():
    steps = [StepSample(0, 0, 1, 10, 0.02)] * 10
    quick = [Phase(clients, steps, 0.1, 5, 50, 0.0) for clients in (MANY, ONE)]
    assert calibration.host_time(quick) == HostTime()


def test_capacity_is_that_of_the_middle():
    steady = [0.5 * number for number in range(1, 101)]
    assert measure.sustained([*[0.01] * 10, *steady, *[60.0] * 10]) == pytest.approx(2.0, rel=0.05)


async def test_capacity_is_what_the_best_number_of_clients_gets(monkeypatch):
    per_second = {8: 5.0, 16: 9.0, 32: 6.0}

    class Loops:
        async def closed_loop(self, requests, clients, seconds, label):
            return [number / per_second[clients] for number in range(1, 101)]

    monkeypatch.setattr(measure, "asker", lambda engines, name: Loops())
    assert await measure.capacity(types.SimpleNamespace(device=CPU), TUNED, CODE) == pytest.approx(9.0)


def test_a_request_does_not_tell_how_long_its_answer_will_be():
    asker = Asker("http://engine", end_token=7, max_model_len=2048)
    [short, long] = [asker.length(Call(0.0, "live", 100, tokens, "x")) for tokens in (1, 500)]
    assert short["max_tokens"] == long["max_tokens"] == 1948
    assert (short["min_tokens"], long["min_tokens"]) == (0, 499)
    assert long["logit_bias"] == {"7": 100}


@pytest.mark.vllm
@pytest.mark.timeout(300)
def test_vllm_says_how_many_tokens_and_requests_a_step_has_by_default():
    settings = cases.with_defaults(CPU).settings
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (2048, 128)
    assert settings.block_size == CPU.settings.block_size


@pytest.mark.vllm
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CONTESTANTS)
def test_predictions_have_the_figures_of_measured_runs(name):
    [workload] = TINY.workloads
    arrivals = workload.arrivals(4.0, 0)
    contestant = Contestant(name, 256 if name in cases.FIXED_BUDGETS else None)
    predicted = forecast.predict(TINY, FITTED, workload, contestant, arrivals)
    assert predicted.keys() == figures.of_run([served(1.0, 1.0), served(2.0, 1.0)], 0.5, 5.0).keys()
    assert 0 < predicted["ttft_mean"] < predicted["e2e_mean"]
    assert predicted == forecast.predict(TINY, FITTED, workload, contestant, arrivals)


class Stopped:
    """A server that only counts how often it was stopped."""

    def __init__(self):
        self.stops = 0
        self.process = types.SimpleNamespace(pid=os.getpid())

    def wait_ready(self):
        pass

    def engine_processes(self):
        return iter(())

    def stop(self):
        self.stops += 1


def test_a_server_stays_until_another_kind_is_asked_for(tmp_path, monkeypatch):
    started = []

    def start(folder, *given, policy, **_):
        started.append(given[-2:])  # arguments and environment
        folder.mkdir()
        return Stopped()

    monkeypatch.setattr(servers.vllm_server, "start", start)
    unpinned = dataclasses.replace(CPU, pinned=False)
    engines = servers.Engines(unpinned, tmp_path)
    engines.start(TUNED, 512, 256)
    first = engines.servers[TUNED]
    engines.start(TUNED, 512, 256)
    assert (len(started), first.stops) == (1, 0)
    engines.start(TUNED, 512, 64)
    assert (len(started), first.stops) == (2, 1)
    engines.stop()
    assert engines.servers == {}
    [(large, environment), (small, _)] = started
    assert environment["VLLM_PLUGINS"] == ""
    assert "--max-num-batched-tokens=256" in large
    assert not any(each.startswith("--max-num-seqs") for each in large)
    assert "--max-num-seqs=64" in small
