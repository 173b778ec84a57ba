"""What `make generate` made is what its sources say, and what was written beside it is still true."""

import re
import subprocess
import sys

import pytest

from e2e.cluster import places
from headrace_operator.api import PodReason, Reason

DOCS = places.REPOSITORY / "docs"


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


def test_links_between_the_pages_lead_somewhere():
    pages = [places.REPOSITORY / "README.md", *DOCS.glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert len(links) > 5
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_the_map_of_the_code_is_true():
    text = (DOCS / "architecture.md").read_text().partition("## Where to find it")[2]
    paths = re.findall(r"`([\w./]+/[\w./]*)`", text)
    assert len(paths) > 15
    assert [path for path in paths if not (places.REPOSITORY / path).exists()] == []
