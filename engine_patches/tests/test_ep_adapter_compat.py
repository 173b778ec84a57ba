"""What the plugin finds and does in the vLLM that is imported; `test_ep_wheels` runs this on every wheel."""

import functools
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace_engine.control.boot import read_boot
from headrace_engine.control.paths import stats_paths

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # vLLM's and torch's own
]


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """vLLM's SchedulerConfig class after registration with a shared folder."""
    from vllm.config.scheduler import SchedulerConfig

    from headrace_engine import plugin

    (tmp_path / "stats").mkdir()
    (tmp_path / "control").mkdir()
    monkeypatch.setenv("HEADRACE_DIR", str(tmp_path))
    monkeypatch.setattr(SchedulerConfig, "get_scheduler_cls", SchedulerConfig.get_scheduler_cls)
    plugin.register()
    first = SchedulerConfig.get_scheduler_cls
    plugin.register()
    assert SchedulerConfig.get_scheduler_cls is first
    return SchedulerConfig


def boot(tmp_path):
    return read_boot(stats_paths(tmp_path).boot)


def vllm_config(**parallel):
    scheduler = SimpleNamespace(policy=parallel.pop("policy", "fcfs"))
    parallel = {"data_parallel_size": 1, "data_parallel_index": 0} | parallel
    return SimpleNamespace(
        scheduler_config=scheduler,
        parallel_config=SimpleNamespace(**parallel),
        model_config=SimpleNamespace(max_model_len=8192),
    )


class Stock:
    def __init__(self, **kwargs):
        self.kwargs = kwargs


def test_this_is_the_vllm_we_mean():
    import vllm

    from headrace_engine.adapter import compat

    newest = "{}.{}.".format(*compat.NEWEST)
    assert vllm.__version__.startswith(os.environ.get("HEADRACE_EXPECT_VLLM", newest))
    assert compat.explain_unsupported_version(vllm.__version__) is None


def test_all_parts_are_there():
    from headrace_engine.adapter.scheduler_factory import explain_refusal

    assert explain_refusal(vllm_config()) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"policy": "priority"}, "--scheduling-policy priority orders requests by itself"),
        ({"data_parallel_size": 2}, "--data-parallel-size above 1 is not supported"),
    ],
)
def test_refused_engines_run_stock_and_say_why(registered, tmp_path, config, reason):
    from headrace_engine.adapter.scheduler_factory import make_scheduler

    scheduler = make_scheduler(Stock, tmp_path, vllm_config(**config), block_size=16)
    assert scheduler.kwargs["block_size"] == 16
    assert (boot(tmp_path).mode, boot(tmp_path).max_model_len) == ("Stock", 8192)
    assert reason in boot(tmp_path).reason


def test_a_scheduler_that_does_not_start_is_replaced_by_stock(registered, tmp_path):
    from headrace_engine.adapter.scheduler_factory import make_scheduler

    assert isinstance(make_scheduler(Stock, tmp_path, vllm_config()), Stock)
    assert "Stock is not a scheduler that policies can run on" in boot(tmp_path).reason


def test_a_check_that_fails_is_a_reason_to_run_stock(registered, tmp_path, monkeypatch):
    from vllm.v1.core.sched.scheduler import Scheduler

    from headrace_engine.adapter.scheduler_factory import make_scheduler

    opaque = staticmethod(functools.partial(Scheduler.schedule))  # has no code to look into
    unreadable = type("Unreadable", (Scheduler,), {"schedule": opaque})
    monkeypatch.setattr("headrace_engine.adapter.scheduler_factory.Scheduler", unreadable)
    assert isinstance(make_scheduler(Stock, tmp_path, vllm_config()), Stock)
    assert boot(tmp_path).mode == "Stock"
    assert "__code__" in boot(tmp_path).reason


def test_an_explicit_scheduler_class_wins(registered, tmp_path):
    name = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"
    config = registered.default_factory(scheduler_cls=name)
    assert f"{config.get_scheduler_cls().__module__}.AsyncScheduler" == name
    assert boot(tmp_path).mode == "Stock"
    assert "--scheduler-cls" in boot(tmp_path).reason


def test_another_version_runs_stock(registered, tmp_path, monkeypatch):
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.99.0")
    config = registered.default_factory()
    assert config.get_scheduler_cls().__module__.startswith("vllm.")
    assert boot(tmp_path).mode == "Stock"
    assert "vLLM 0.99.0 is not supported" in boot(tmp_path).reason


def test_the_log_lines_that_tell_of_start_and_end_are_vllms_own():
    import vllm

    from headrace_engine.adapter import startup_phases, termination_message

    folder = Path(vllm.__file__).parent / "v1"
    code = "".join(file.read_text() for file in folder.rglob("*.py"))
    for text in (*termination_message.FATAL, *(beginning for beginning, _ in startup_phases.BEGINNINGS)):
        assert f'"{text}' in code, text


def test_the_hub_is_asked_through_the_client_whose_downloads_are_told():
    import huggingface_hub
    import vllm

    assert callable(huggingface_hub.HfApi.snapshot_download)
    loader = Path(vllm.__file__).parent / "model_executor" / "model_loader" / "weight_utils.py"
    assert "snapshot_download(" in loader.read_text()
