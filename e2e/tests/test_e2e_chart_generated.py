"""What `make generate` made is what its sources say, and what was written beside it is still true."""

import re
import subprocess
import sys

import pytest

from e2e.cluster import places
from headrace_operator.api import PodReason, Reason, Severity

DOCS = places.REPOSITORY / "docs"
PLAIN = {
    "enabled",
    "resources",
    "nodeSelector",
    "tolerations",
    "affinity",
}  # the last four are Kubernetes' own


@pytest.mark.parametrize("script", [("-m", "charts.generate"), ("docs/generate.py",)], ids=" ".join)
def test_generated_files_are_current(script):
    done = subprocess.run(
        [sys.executable, *script, "--check"],
        cwd=places.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_reason_has_its_advice():
    text = (places.REPOSITORY / "docs/troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`[A-Z].*?) \|", text, re.MULTILINE)
    advised = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert advised == {reason.value for reason in (*PodReason, *Reason)}


def test_reasons_of_pods_are_advised_on_gravest_first():
    text = (places.REPOSITORY / "docs/troubleshooting.md").read_text()
    section = text.partition("\n## Ready")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert rows[rows.index(PodReason.MODEL_CLAIM_NOT_FOUND) :] == [reason.value for reason in PodReason]


def test_the_alert_on_a_service_that_is_down_leaves_out_what_is_expected():
    rules = (places.REPOSITORY / "charts/headrace/files/rules.yaml").read_text()
    [reasons] = re.findall(r'condition="Ready", reason=~"([\w|]+)"', rules)
    expected = {reason for reason in PodReason if reason.severity is Severity.EXPECTED}
    assert set(reasons.split("|")) == {Reason.SCALED_TO_ZERO, *expected}


def test_every_action_of_the_operator_is_on_the_metrics_page():
    source = (places.REPOSITORY / "operator/src/headrace_operator").rglob("*.py")
    counted = {name for file in source for name in re.findall(r'ACTIONS\.labels\("(\w+)"', file.read_text())}
    [listed] = re.findall(r"`action` is (.*?)\.\n", (DOCS / "metrics.md").read_text(), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == counted


def unexplained(lines):
    """Keys of values.yaml without a comment above them, or above the block of a section that they are in."""
    told, commented = {}, False  # indentation → whether the block there is explained
    for line in lines:
        indent, text = len(line) - len(line.lstrip()), line.strip()
        if text.startswith("#") or not text:
            commented = bool(text)
            continue
        told = {depth: known for depth, known in told.items() if depth < indent}
        key = text.partition(":")[0]
        known = commented or key in PLAIN or any(known for depth, known in told.items() if depth)
        if not known:
            yield key
        told[indent], commented = known, False


def test_every_value_of_the_chart_is_explained():
    values = (places.REPOSITORY / "charts/headrace/values.yaml").read_text().splitlines()
    assert list(unexplained(values)) == []
    assert list(unexplained(["# Said.", "a:", "  b: 1", "  # Said.", "  c:", "    d: 2", "e: 3"])) == [
        "b",
        "e",
    ]


def test_links_between_the_pages_lead_somewhere():
    pages = [places.REPOSITORY / "README.md", *DOCS.glob("**/*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert len(links) > 5
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def mapped_paths():
    """Files and folders that the map of the code names."""
    page = (DOCS / "architecture.md").read_text()
    packages, _, rest = page.partition("## Packages")[2].partition("## Where to find it")
    ideas = rest.partition("## Glossary")[0]
    return {
        *re.findall(r"^\| `([\w./]+/)` \|", packages, re.MULTILINE),
        *re.findall(r"`([\w./]+/[\w./]*)`", ideas),
    }


def test_the_map_of_the_code_is_true():
    paths = mapped_paths()
    assert len(paths) > 15
    assert [path for path in paths if not (places.REPOSITORY / path).exists()] == []


def unmapped(files, paths):
    """Files that neither are in the map nor lie right in a folder that is."""
    return [file for file in files if not {file, file.rpartition("/")[0] + "/"} & paths]


def test_every_module_is_in_the_map_of_the_code():
    roots = ("operator", "sidecar", "engine_patches", "charts", "e2e", "docs")
    files = [file for root in roots for file in (places.REPOSITORY / root).rglob("*.py")]
    paths = [file.relative_to(places.REPOSITORY) for file in files if "tests" not in file.parts]
    modules = [str(path) for path in paths]
    assert len(modules) > 200
    assert unmapped(modules, mapped_paths()) == []
    assert unmapped(["a/b.py", "a/c/d.py", "a/e.py"], {"a/b.py", "a/c/"}) == ["a/e.py"]


def cells(page):
    """The cells of every row of a page's tables."""
    for line in page.read_text().splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def test_every_row_of_a_table_can_be_read_alone():
    pages = [places.REPOSITORY / "README.md", *DOCS.glob("**/*.md")]
    rows = [(page.name, row) for page in pages for row in cells(page)]
    assert len(rows) > 500
    assert [name for name, row in rows if row[0].startswith(("…", "..."))] == []


@pytest.mark.parametrize("name", ["failure-modes.md", "troubleshooting.md"])
def test_cells_about_failures_take_two_lines_at_most(name):
    assert [cell for row in cells(DOCS / name) for cell in row if len(cell) > 200] == []
