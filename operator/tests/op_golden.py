"""Golden cases: `cr.yaml` is an LLMService, `expected.yaml` every object that it must become.

`python operator/tests/op_golden.py` writes the expectations anew. Read the difference before committing it: a
changed pod template means that services roll their pods when they next change.
"""

from pathlib import Path

import yaml

from headrace_operator.api import parse_service
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.desired import desired_objects
from headrace_operator.settings import Settings

FOLDER = Path(__file__).parent / "golden"
SETTINGS = Settings(sidecar_image="example/sidecar:1")


def cases():
    return sorted(path.name for path in FOLDER.iterdir())


def golden(case):
    return yaml.safe_load((FOLDER / case / "cr.yaml").read_text())


class Plain(yaml.SafeDumper):
    """Without anchors, for readers."""

    def ignore_aliases(self, _):
        return True


def render(case):
    parsed = parse_service(golden(case))
    return yaml.dump_all(
        desired_objects(parsed, SETTINGS, served_model_names(parsed), None), Dumper=Plain, sort_keys=True
    )


def expected(case):
    return (FOLDER / case / "expected.yaml").read_text()


if __name__ == "__main__":
    for name in cases():
        (FOLDER / name / "expected.yaml").write_text(render(name))
