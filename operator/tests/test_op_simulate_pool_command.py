"""`headrace simulate --pool` from its command line to its output: errors of one line, tables, JSON."""

import io
import json

import pytest
import yaml
from op_kube import gpupool
from op_simulate_pool import QWEN, raw, read, write_trace
from rich.console import Console

from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.placement.problem import Nodes
from headrace_operator.simulate import command
from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.pool.pool_report import PoolReport, as_json
from headrace_operator.simulate.pool.pool_study import Engine, Placed, PoolStudy, SimulatedPlan
from headrace_operator.simulate.pool.pool_table import print_report
from headrace_operator.simulate.pool.pool_traces import PoolStretch
from headrace_operator.simulate.table import WIDTH


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command on a file of these objects; gives its exit code and its lines on stderr."""

    def run(objects, *options, traces=("chat", "code"), gpu="h100"):
        (tmp_path / "pool.yaml").write_text("---\n".join(map(yaml.safe_dump, objects)))
        given = [f"--trace={name}={write_trace(tmp_path, name, range(60))}" for name in traces]
        code = command.main(
            ["simulate", "--pool", str(tmp_path / "pool.yaml"), *given, "--gpu", gpu, *options]
        )
        return code, capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()

    return run


PAIR = (raw("chat"), raw("code"))


@pytest.mark.parametrize(
    ("objects", "options", "said"),
    [
        ([gpupool(a=["chat"])], {}, "pool.yaml: no LLMService in it; it holds GPUPool"),
        ([*PAIR, raw("chat")], {}, "pool.yaml: two LLMServices are called chat; rename one"),
        (PAIR, {"traces": ["chat"]}, "--trace: none for code; add --trace code=FILE"),
        (
            PAIR,
            {"traces": ["chat", "code", "other"]},
            "--trace: the file has no LLMService 'other'; it has chat, code",
        ),
        (PAIR, {"traces": ["chat", "chat", "code"]}, "--trace: given twice for chat"),
        (
            [raw("chat", "hf://a/b"), raw("code")],
            {},
            "chat: spec.model.source: no cost model is known for hf://a/b",
        ),
        (PAIR, {"gpu": "tpu"}, "chat: --gpu: no cost model for llama-3-8b on tpu"),
        ([raw("chat", gpus=8), raw("code")], {}, "chat: spec.engine.tensorParallelSize: no cost model for"),
        ([*PAIR, gpupool()], {}, 'pool.yaml: the GPUPool "shared" is invalid: spec.groups'),
        ([*PAIR, gpupool(a=["chat", "x"])], {}, "pool.yaml: group a: no LLMService x in the file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, objects, options, said):
    code, lines = run(objects, **options)
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith(f"headrace simulate: {said}")


def test_each_trace_and_model_names_its_service(run):
    code, [line] = run(PAIR, "--model", "llama-3-8b")
    assert (code, line) == (
        2,
        "headrace simulate: --model: 'llama-3-8b' is not NAME=MODEL; with --pool each names its LLMService",
    )


def test_several_traces_are_for_pools(tmp_path, capsys):
    (tmp_path / "chat.yaml").write_text(yaml.safe_dump(raw("chat")))
    traces = [f"--trace={write_trace(tmp_path, name, range(60))}" for name in ("a", "b")]
    assert command.main(["simulate", "--service", str(tmp_path / "chat.yaml"), *traces, "--gpu=h100"]) == 2
    assert "--pool takes one for each LLMService" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--service", "a", "--pool", "b"]])
def test_it_is_a_service_or_a_pool(options, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["simulate", *options, "--trace", "t", "--gpu", "h100"])
    assert ended.value.code == 2
    assert "--service" in capsys.readouterr().err


SECOND = Spread(1.0, 1.0, 2.0, 3.0)
FIGURES = Figures(60, 0, SECOND, SECOND, SECOND, 0.5, 0, {"all": 0.95})
SERVICES = [read("chat"), read("sum", QWEN, gpus=2)]
KV = 100_000
TODAY = SimulatedPlan(
    (Placed(1, (Engine(0, KV),)), Placed(1, (Engine(0, KV),)), Placed(2, (Engine(1, KV),))),
    (FIGURES, None),
)
SHARED = SimulatedPlan((Placed(2, (Engine(0, KV), Engine(1, KV))),), (FIGURES, None))


def report(**plans):
    known = {"today": TODAY, "alone": TODAY, "shared": SHARED, "fewest_alone": None, "fewest_shared": SHARED}
    arrivals = (tuple(Arrival(float(at), 200, 50) for at in range(60)), ())
    return PoolReport(
        SERVICES,
        "h100",
        Nodes((8, 4), 1, 1),
        PoolStretch(arrivals, 30.0, 60.0, 100, 100.0, ("a row",)),
        PoolStudy(**{**known, **plans}),
    )


def shown(**plans):
    out = io.StringIO()
    print_report(report(**plans), Console(file=out, width=WIDTH))
    return out.getvalue()


def test_the_tables_show_each_plan_once_and_how_to_set_the_best():
    text = shown()
    assert text.startswith("Simulated: 2 services on 1 x 8 and 1 x 4 H100")
    assert text.count("GPUs, simulated") == 2
    assert "As it is today: 4 GPUs" in text
    assert "The best plan that may share: 2 GPUs" in text
    assert "2 x 1 GPU" in text
    assert "2 GPUs with sum" in text
    assert "2 shared, 4 without sharing; today 4." in text
    assert "chat and sum by turns on 2 x H100" in text
    kv = KV * 131_072 // 2
    assert (
        f"tensorParallelSize: 2, gpuMemoryUtilizationPercent: 21, args: [--kv-cache-memory-bytes={kv}]"
        in text
    )
    assert "chat: 60 requests, 1.00 per second" in text
    assert "1 rows skipped, first: a row" in text


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        ({"shared": TODAY, "fewest_shared": None}, "Sharing gains nothing on this traffic."),
        ({"shared": None, "fewest_shared": None}, "No plan has room for every service on 12 GPUs."),
    ],
)
def test_where_sharing_gains_nothing_that_is_said(plans, words):
    text = shown(**plans)
    assert words in text
    assert "by turns" not in text


def test_unlike_engines_are_told():
    unlike = SimulatedPlan((*SHARED.groups, Placed(1, (Engine(0, KV),))), (FIGURES, None))
    assert "one LLMService cannot have yet: chat." in shown(shared=unlike, fewest_shared=None)
    assert "Unlike" not in shown()


def test_json_has_everything():
    found = json.loads(json.dumps(as_json(report())))
    assert found["simulated"]
    assert found["gpus"] == {"today": 4, "own_gpus": 4, "shared": 2}
    assert list(found["plans"]) == ["today", "shared"]
    assert found["plans"]["shared"]["services"]["sum"] is None
    assert found["plans"]["today"]["services"]["chat"]["met"]["all"] == 0.95
    [group] = found["plans"]["shared"]["groups"]
    assert [each["service"] for each in group["engines"]] == ["chat", "sum"]
    assert (found["nodes"], found["trace"]["requests"]) == ([8, 4], 60)
