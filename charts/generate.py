"""Write the chart's CRD templates from crds/: `python -m charts.generate [--check]`.

Helm installs a chart's own `crds/` folder once and never upgrades it, so the definitions are templates here,
behind `crds.enabled`, and survive an uninstall by `crds.keep`. With --check nothing is written and the exit
status says whether the templates are current.
"""

import sys
from pathlib import Path

from charts.generated import settle

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "crds"
TEMPLATES = ROOT / "charts/headrace/templates/crds"

HEAD = """\
{{- /* Generated from crds/%s by `make generate`. */ -}}
{{- if .Values.crds.enabled }}
"""
METADATA = """\
metadata:
  labels:
    {{- include "headrace.labels" (list . "crds") | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def template(source: Path) -> str:
    """Make the Helm template of a canonical CRD file, which may hold anything but labels and annotations."""
    text = source.read_text()
    head, found, rest = text.partition("metadata:\n")
    metadata = rest.partition("spec:\n")[0]
    if not found or "labels:" in metadata or "annotations:" in metadata:
        raise SystemExit(f"{source}: expected top-level metadata without labels and annotations")
    body = escape(head) + METADATA + escape(rest)
    return HEAD % source.name + body.rstrip("\n") + "\n{{- end }}\n"


def escape(text: str) -> str:
    """Escape text so that Helm's template language prints it as it is."""
    return text.replace("{{", '{{ "{{" }}')


def main(check: bool) -> int:
    """Write or compare every template; returns the exit status."""
    wanted = {source.name: template(source) for source in sorted(SOURCES.glob("*.yaml"))}
    return settle(TEMPLATES, wanted, "*.yaml", check=check)


if __name__ == "__main__":
    sys.exit(main(check=sys.argv[1:] == ["--check"]))
