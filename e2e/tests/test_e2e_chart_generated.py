"""Files made by `make generate` are what their sources say."""

import subprocess
import sys

import pytest

from e2e.cluster import places


@pytest.mark.parametrize("script", ["charts/generate.py", "docs/generate.py"])
def test_generated_files_are_current(script):
    done = subprocess.run(
        [sys.executable, places.REPOSITORY / script, "--check"],
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
    assert advised == {reason.value for reason in Reason}


@pytest.mark.parametrize("page", ["README.md", *sorted(p.name for p in DOCS.glob("*.md"))])
def test_links_and_paths_lead_somewhere(page):
    path = places.REPOSITORY / page if page == "README.md" else DOCS / page
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert links
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing


def test_the_map_of_the_code_is_true():
    text = (DOCS / "architecture.md").read_text().partition("## Where to find it")[2]
    code = [places.REPOSITORY, places.REPOSITORY / "operator/src/headrace_operator"]
    code += [places.REPOSITORY / "engine_patches/src/headrace_engine", *(places.REPOSITORY / "sidecar/src").glob("*")]
    names = [name for cell in re.findall(r"^\|[^|]+\|([^|]+)\|$", text, re.MULTILINE)[2:] for name in PATHS(cell)]
    assert len(names) > 20
    assert [name for name in names if not any((root / name).exists() for root in code)] == []
