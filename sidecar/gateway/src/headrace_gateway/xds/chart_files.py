"""The chart's copies of Envoy's static configuration, in `charts/headrace/files`.

Helm fills in the picker's address and the limits, and leaves out TLS and API keys where no Secret is named.
`python -m headrace_gateway.xds.chart_files` writes them.
"""

import itertools
from pathlib import Path
from typing import Any

import yaml

from headrace_gateway.xds import credentials
from headrace_gateway.xds.bootstrap import Bootstrap, bootstrap

CHART_FOLDER = Path("charts/headrace/files")
CHART = Bootstrap(
    picker_host='{{ include "headrace.fullname" . }}-picker.{{ .Release.Namespace }}.svc',
    max_body_bytes="{{ .Values.gateway.maxBodyBytes | int64 }}",
    memory_bytes='{{ include "headrace.memoryLimit" '
    '(dict "component" "gateway" "resources" .Values.gateway.resources) }}',
    certificate="/etc/envoy/certificate.yaml",
    api_keys="/run/headrace/api-keys.json",
    drain_file="/run/envoy/draining",
)
CHART_CERTIFICATE = "/etc/headrace/tls"
CHART_OPTIONAL = {  # a block's first line, and the value without which Helm leaves it out
    "transport_socket:": ".Values.gateway.tls.secretName",
    f"- name: {credentials.API_KEYS}": ".Values.gateway.apiKeys.secretName",
}


def chart_files() -> dict[str, str]:
    """Render the chart's copies, by name; long lines stay whole, since a Helm template must."""
    documents = {
        "envoy.yaml": bootstrap(CHART),
        "certificate.yaml": credentials.certificate_document(CHART_CERTIFICATE),
    }
    texts = {
        name: yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=10_000)
        for name, each in documents.items()
    }
    for first_line, condition in CHART_OPTIONAL.items():
        texts["envoy.yaml"] = _only_if(condition, first_line, texts["envoy.yaml"])
    return texts


class _Dumper(yaml.SafeDumper):
    """Quotes the words that Envoy's YAML, but not Python's, takes for a boolean; writes all where it is."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  yaml's
        return True


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text in ("y", "Y", "n", "N") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)


def _only_if(condition: str, first_line: str, text: str) -> str:
    """Put a Helm condition around the block of `text` that begins with `first_line` and is indented."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() == first_line)
    indent = len(lines[start]) - len(lines[start].lstrip())
    inside = itertools.takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[start + 1 :])
    end = start + 1 + len(list(inside))
    whole = [*lines[:start], f"{{{{- if {condition} }}}}", *lines[start:end], "{{- end }}", *lines[end:]]
    return "\n".join(whole) + "\n"


if __name__ == "__main__":
    CHART_FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in chart_files().items():
        (CHART_FOLDER / name).write_text(text)
