"""The studies' command lines: each says what it measures when asked for help, and starts nothing."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

from e2e.bench.__main__ import POOLED, STUDIES
from e2e.cluster.places import REPOSITORY

IMPORTING_VLLM = {"blind", "validation", "plan_cost"}


def find_study(name):
    package = importlib.util.find_spec(f"e2e.bench.{name}")
    inside = package.submodule_search_locations is not None
    return importlib.import_module(f"e2e.bench.{name}.study" if inside else f"e2e.bench.{name}")


@pytest.mark.parametrize("name", sorted({*STUDIES, "tenants"} - IMPORTING_VLLM))
def test_help_starts_nothing(name, monkeypatch, capsys):
    study = find_study(name)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        study.main()
    assert ended.value.code == 0
    assert (study.__doc__ or "").partition(" ")[0] in capsys.readouterr().out


@pytest.mark.vllm
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(IMPORTING_VLLM))
def test_help_starts_nothing_where_vllm_is_imported(name):
    command = [sys.executable, "-m", f"e2e.bench.{name}", "--help"]
    told = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    assert told.startswith("usage:")


@pytest.mark.parametrize("name", [*STUDIES, "tenants"])
def test_every_study_runs_by_its_name(name):
    package = importlib.util.find_spec(f"e2e.bench.{name}")
    if package.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"e2e.bench.{name}.__main__") is not None


@pytest.mark.parametrize("name", POOLED)
def test_studies_that_share_the_pool_are_where_they_are_looked_for(name):
    assert importlib.import_module(f"e2e.bench.{POOLED[name]}") is find_study(name)
