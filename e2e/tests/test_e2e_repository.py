"""House rules that no linter knows."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
LONGEST_MODULE = 400  # lines; a longer one is two ideas in one room
OF_A_BENCHMARK = {"cases.py", "figures.py", "page.py", "study.py", "testbed.py"}  # in the package of each
NO_VERBS = re.compile(
    r"(an?|all|any|as|at|each|every|from|how|if|in|its?|nothing|of|once|one|some|the|those|wh\w+|with\w*)\b",
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(r"/(work|root)/[a-z]|/tmp/[a-z]+/|\.pyenv/")


def tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [path for name in listing.splitlines() if (path := ROOT / name).is_file()]


def test_modules_stay_short():
    lengths = {path: len(path.read_text().splitlines()) for path in tracked("*.py", "*.go")}
    assert lengths
    assert {path: n for path, n in lengths.items() if n > LONGEST_MODULE} == {}


def test_the_operator_folder_does_not_shadow_the_standard_library():
    assert not (ROOT / "operator/__init__.py").exists()


def describe_functions(source):
    """Name and docstring of every function that has one; a property's is of what it holds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            held = [each for each in node.decorator_list if ast.unparse(each).endswith("property")]
            text = ast.get_docstring(node)
            if text and not held and not node.name.startswith("__"):
                yield node.name, text


def test_docstrings_of_functions_begin_with_what_they_do():
    files = [path for path in tracked("*.py") if "tests" not in path.parts]
    found = [(name, text) for path in files for name, text in describe_functions(path.read_text())]
    assert len(found) > 1000
    assert [name for name, text in found if NO_VERBS.match(text)] == []
    assert next(describe_functions('def f():\n    """The sum."""')) == ("f", "The sum.")


def test_test_modules_have_unique_names():
    names = [path.name for path in tracked("**/tests/test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    "folder",
    ["operator/src", "sidecar/engine/src", "sidecar/gateway/src", "engine_patches/src", "e2e", "charts"],
)
def test_modules_of_one_distribution_have_unique_names(folder):
    modules = [path for path in tracked(f"{folder}/**/*.py") if "tests" not in path.parts]
    shared = {"__init__.py", "__main__.py", *(OF_A_BENCHMARK if folder == "e2e" else ())}
    names = [path.name for path in modules if path.name not in shared]
    assert names
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("package", ["engine_patches", "operator", "sidecar/engine", "sidecar/gateway"])
def test_wheels_hold_the_data_that_their_packages_read(package):
    source = ROOT / package / "src"
    data = [path for path in tracked(f"{package}/src/**") if path.suffix != ".py"]
    held = {each.distribution_path for each in WheelBuilder(str(ROOT / package)).recurse_included_files()}
    assert {str(path.relative_to(source)) for path in data} <= held


@pytest.mark.parametrize("pattern", ["*.py", "*.sh", "*.md", "*.yaml", "*.toml", "Makefile", "*Dockerfile"])
def test_no_file_names_the_machine_it_was_written_on(pattern):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked(pattern)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []
