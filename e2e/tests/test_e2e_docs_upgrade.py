"""docs/upgrade.md names what there is, and nothing beside it still uses a name of before."""

import re
import subprocess

import pytest
import yaml

from e2e.cluster import places
from e2e.monitoring import queries

PAGE = places.REPOSITORY / "docs/upgrade.md"
KINDS = {"LLMService": "llmservices", "LLMRoute": "llmroutes"}


def tables(text):
    """Each table of the page: its header and its rows, as lists of cells."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in block.splitlines()]
        yield [cell.strip("| ") for cell in header], [[cell.strip("| ") for cell in row] for row in rows]


def renamed(section):
    """The rows of a section's table of names: `before`, `is called` and what stands beside them."""
    text = PAGE.read_text().partition(f"\n### {section}\n")[2].partition("\n### ")[0]
    return [row for header, rows in tables(text) if header[:2] == ["before", "is called"] for row in rows]


def known_fields(kind):
    """Every field of a kind's spec, as a path such as `slo.tpot`."""
    file = places.REPOSITORY / f"crds/{KINDS[kind]}.headrace.dev.yaml"
    [version] = yaml.safe_load(file.read_text())["spec"]["versions"]

    def walk(schema, path):
        for name, field in schema.get("properties", {}).items():
            yield f"{path}{name}"
            yield from walk(field, f"{path}{name}.")

    return set(walk(version["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))


def in_the_schema(cell, fields):
    """Whether a cell's field is there; of `field: value` the field alone."""
    return re.fullmatch(r"`([\w.]+)(: \w+)?`", cell)[1] in fields


def test_fields_are_called_as_the_page_says():
    rows = renamed("Fields")
    assert len(rows) >= 10
    for before, after, where in rows:
        fields = known_fields(where.partition(",")[0])
        assert in_the_schema(after, fields), after
        assert ": " in before or not in_the_schema(before, fields), before


def test_metrics_are_called_as_the_page_says():
    rows = renamed("Metrics")
    assert len(rows) >= 6
    documented = queries.documented()
    for before, after in rows:
        assert after.strip("`") in documented
        assert before.strip("`") not in documented


@pytest.mark.parametrize("section", ["Requests", "Metrics", "Reports, annotations and modules"])
def test_nothing_else_uses_a_name_of_before(section):
    names = [row[0].strip("`") for row in renamed(section)]
    distinct = [name for name in names if re.search(r"[-_/]", name)]  # not `jct`, a word of the papers
    assert len(distinct) > 2
    command = ["git", "grep", "--fixed-strings", "--word-regexp", "--files-with-matches"]
    patterns = [argument for name in distinct for argument in ("-e", name)]
    found = subprocess.run(
        [*command, *patterns, "--", ".", ":!docs/upgrade.md"],
        cwd=places.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (1, "")  # 1: no line was found


def reachable(page, known=()):
    """The pages that links lead to from one, itself included."""
    found = {*known, page}
    for link in re.findall(r"\]\(([^):#]+\.md)", page.read_text()):
        target = (page.parent / link).resolve()
        if target not in found:
            found = reachable(target, found)
    return found


def test_every_page_is_linked():
    pages = {path.resolve() for path in (places.REPOSITORY / "docs").glob("**/*.md")}
    assert len(pages) > 10
    assert pages - reachable((places.REPOSITORY / "README.md").resolve()) == set()
