#!/usr/bin/env python3
"""Fill the generated parts of docs/: generate.py [--check].

A page keeps such a part between `<!-- generated: NAME -->` and `<!-- end -->`. The API reference comes from
the CRD, the map of packages from their docstrings, the parameters of the policies from their `Params` and
`Methods`, the metrics from their collectors, the figures that headlines.json and choices.json choose from
e2e/bench/results. With --check nothing is written and the exit status says whether the pages are current.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics import MetricWrapperBase

from headrace_engine.control.paths import policy_path, stats_paths
from headrace_engine.cost import known_error as known_errors
from headrace_engine.policies import parameters, registry
from headrace_engine.sim.form import MODULES
from headrace_gateway import metrics as gateway_metrics
from headrace_gateway.relay import relay_metrics
from headrace_operator import metrics as operator_metrics
from headrace_sidecar.handover import Handover
from headrace_sidecar.metrics import EngineMetrics, RequestMetrics
from headrace_sidecar.monitor import Monitor

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    *("README.md", "docs/api.md", "docs/architecture.md", "docs/policies.md", "docs/metrics.md"),
    "docs/sharing.md",
    *("docs/benchmarks.md", "docs/policies/econoserve.md", "docs/policies/accelgen.md"),
    "docs/policies/doubling-budget.md",
)
RESULTS = ROOT / "e2e/bench/results"
HEADLINES = json.loads((ROOT / "docs/headlines.json").read_text())
CHOICES = json.loads((ROOT / "docs/choices.json").read_text())
BLOCK = re.compile(r"(?<=<!-- generated: )(?P<name>[^>]+?)( -->\n)(?P<text>.*?)(?=<!-- end -->)", re.DOTALL)

LIVE_WORKLOADS = {"code": "code, bursts", "conversation": "conversation", "kv": "KV-bound"}
LIVE_CONTESTANTS = {
    "default": "default stock",
    "larry": "LARRY",
    "econoserve": "EconoServe",
    "accelgen": "AccelGen",
}
LIVE_FIGURES = {
    "ttft": "mean TTFT",
    "tpot": "mean TPOT",
    "e2e": "mean E2E",
    "wait": "longest wait",
    "goodput": "goodput",
}
SIMULATED_ENGINES = {
    "Llama-3-8B on H100": ("llama-3-8b", "H100", 1),
    "OPT-13B on A100": ("opt-13b", "A100", 1),
}

Schema = dict[str, Any]


def spec_reference() -> str:
    """List every field of LLMService's spec, one table per block."""
    return "\n".join(tables("spec", properties_of("llmservices")["spec"]))


def status_reference() -> str:
    """List every field of LLMService's status."""
    return "\n".join(tables("status", properties_of("llmservices")["status"]))


def pool_reference() -> str:
    """List every field of GPUPool."""
    found = properties_of("gpupools")
    return "\n".join(part for name in ("spec", "status") for part in tables(name, found[name]))


def policy_parameters(policy: str) -> str:
    """List the parameters of one policy."""
    properties = registry.parameter_schema(policy)["properties"]
    if not properties:
        return "No parameters.\n"
    rows = [row(name, schema, required=False) for name, schema in properties.items()]
    return table(rows)


def policy_methods(policy: str) -> str:
    """List the methods of one policy that only simulations choose."""
    properties = parameters.schema(MODULES[policy].Methods)["properties"]
    return table([row(name, schema, required=False) for name, schema in properties.items()])


def sidecar_metrics() -> str:
    """List every metric of the engine sidecar."""
    collectors, nowhere = CollectorRegistry(), Path("/nonexistent")
    requests = RequestMetrics(collectors)
    handover = Handover(nowhere / "policy.json", policy_path(nowhere), registry.validate_document)
    collectors.register(EngineMetrics(Monitor(stats_paths(nowhere), requests.add), handover))
    return metric_table((family, getattr(family, "_labelnames", ())) for family in collectors.collect())


def module_metrics(module: ModuleType) -> str:
    """List every metric that a module defines."""
    collectors = (value for value in vars(module).values() if isinstance(value, MetricWrapperBase))
    return metric_table(
        (family, getattr(collector, "_labelnames", ()))
        for collector in collectors
        for family in collector.collect()
    )


def metric_table(families: Iterable[tuple[Metric, Iterable[str]]]) -> str:
    """Name, type, labels, meaning; a family's own labels do not show before something was counted."""
    lines = ["| metric | type | labels | meaning |\n", "| --- | --- | --- | --- |\n"]
    for family, declared in families:
        labels = dict.fromkeys(declared)
        labels |= dict.fromkeys(
            label for sample in family.samples for label in sample.labels if label != "le"
        )
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {family.type} | {shown} | {family.documentation.rstrip('.')} |\n")
    return "".join(lines)


def properties_of(plural: str) -> Schema:
    """Return the properties of the stored version of a kind."""
    definition = yaml.safe_load((ROOT / f"crds/{plural}.headrace.dev.yaml").read_text())
    [version] = (version for version in definition["spec"]["versions"] if version["storage"])
    return version["schema"]["openAPIV3Schema"]["properties"]  # type: ignore[no-any-return]


def tables(path: str, schema: Schema) -> Iterator[str]:
    """Make one section for an object, then one for each object in it."""
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    yield f"### {path}\n\n{schema.get('description', '')}".rstrip() + "\n"
    yield table([row(name, field, name in required) for name, field in properties.items()])
    rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield "Rules: " + "; ".join(rules) + ".\n"
    for name, field in properties.items():
        item = field.get("items", field)
        if "properties" in item:
            yield from tables(f"{path}.{name}{'[]' if item is not field else ''}", item)


def headlines(study: str) -> str:
    """List the chosen figures of one benchmark; `-` for one that its results do not have."""
    figures = figures_of(HEADLINES[study].get("of", study))
    title = "simulated" if HEADLINES[study]["simulated"] else "measured"
    lines = [f"| what | {title} |\n", "| --- | --: |\n"]
    for label, key, unit in HEADLINES[study]["rows"]:
        lines.append(f"| {label} | {shown_figure(figures, key, unit)} |\n")
    return "".join(lines)


def choices() -> str:
    """Say when to use each policy and balancer, what it gains measured and simulated, whose idea it is."""
    titles = ("use", "when", "gain, measured (95 % interval)", "gain, simulated", "paper")
    lines = [f"| {' | '.join(titles)} |\n", "| --- " * len(titles) + "|\n"]
    for each in CHOICES:
        name, comma, long_name = each["name"].partition(",")
        paper = each["paper"] and f"[arXiv {each['paper']}](https://arxiv.org/abs/{each['paper']})"
        gains = [with_figures(each[kind]) for kind in ("measured", "simulated")]
        cells = (f"{each['kind']} **{name}**{comma}{long_name}", each["use"], *gains, paper)
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def with_figures(text: str) -> str:
    """Put figures in the place of `{STUDY.KEY}`."""
    return re.sub(r"{(\w+)\.(\w+)}", lambda found: shown_figure(figures_of(found[1]), found[2]), text)


def live_ratios() -> str:
    """Tabulate each policy over tuned stock on the real engine, with what was predicted."""
    figures = figures_of("live")
    titles = ("load 0.9", "policy / tuned stock", *LIVE_FIGURES.values())
    lines = [f"| {' | '.join(titles)} |\n", "| --- | --- |" + " --: |" * len(LIVE_FIGURES) + "\n"]
    for workload, its_name in LIVE_WORKLOADS.items():
        for contestant, whose in LIVE_CONTESTANTS.items():
            keys = [f"{figure}_ratio_{contestant}_{workload}_09" for figure in LIVE_FIGURES]
            cells = [
                f"{shown_figure(figures, key)}; {shown_figure(figures, f'predicted_{key}')}" for key in keys
            ]
            lines.append(f"| {its_name} | {whose} | {' | '.join(cells)} |\n")
    return "".join(lines)


def known_error(model: str, gpu: str, tensor_parallel: int) -> str:
    """Say how far simulations of this model and GPU were from measured runs."""
    compared = known_errors.find_comparisons(known_errors.load_comparisons(), model, gpu, tensor_parallel)
    if not compared:
        return "No measured run of this model and GPU was compared.\n"
    off = [
        f"{figure.upper()} {abs(median):.1f} % in the median and {worst:+.1f} % at worst"
        for figure in known_errors.FIGURES
        if (median := known_errors.median_error(compared, figure)) is not None
        and (worst := known_errors.worst_error(compared, figure)) is not None
    ]
    runs, engines = sum(len(each.runs) for each in compared), sorted({each.engine for each in compared})
    return f"Of {runs} measured runs ({', '.join(engines)}) mean times were off by: {'; '.join(off)}.\n"


def packages() -> str:
    """List every Python package of the tree but its tests, with the first line of its docstring."""
    lines = ["| package | what is in it |\n", "| --- | --- |\n"]
    for root in ("operator/src", "sidecar", "engine_patches/src", "charts", "e2e"):
        for path in sorted(ROOT.glob(f"{root}/**/__init__.py")):
            folder = path.parent.relative_to(ROOT)
            if "tests" not in folder.parts:
                purpose = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
                lines.append(f"| `{folder}/` | {purpose} |\n")
    return "".join(lines)


def figures_of(study: str) -> dict[str, Any]:
    """Return the figures that a benchmark has stored; none before it has run."""
    path = RESULTS / f"{study}.json"
    return json.loads(path.read_text())["figures"] if path.exists() else {}


def shown_figure(figures: dict[str, Any], key: str, unit: str = "") -> str:
    """Write a figure with its unit and interval; `-` if there is none.

    `KEY_bound` above 0 says that the figure is at least KEY, below 0 that it is at most KEY; `KEY_low` and
    `KEY_high` are its interval, and `KEY_seeds` 1 says that it has none.
    """
    if key not in figures:
        return "-"
    bound = figures.get(f"{key}_bound", 0)
    sign = "> " if bound > 0 else "< " if bound < 0 else ""
    return f"{sign}{shown_number(figures[key])} {unit}".strip() + doubt(figures, key)


def doubt(figures: dict[str, Any], key: str) -> str:
    """Write the figure's interval, or that it is of one seed; nothing for what has no seeds."""
    if f"{key}_low" in figures:
        return f" ({shown_number(figures[f'{key}_low'])} to {shown_number(figures[f'{key}_high'])})"
    return " (one seed)" if figures.get(f"{key}_seeds") == 1 else ""


def shown_number(value: float) -> str:
    """Write a number in three digits, all of them before the point if there are more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(rows: list[tuple[str, ...]]) -> str:
    """Make a Markdown table of fields, without the columns that no field fills."""
    titles = ("field", "type", "default", "a change", "meaning")
    used = [column for column in range(len(titles)) if any(cells[column] for cells in rows)]
    lines = [[titles[column] for column in used], ["---"] * len(used)]
    lines += [[cells[column] for column in used] for cells in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def row(name: str, schema: Schema, required: bool) -> tuple[str, ...]:
    """Make a row: field, type with bounds, default, what a change does, meaning; the CRD says it all."""
    default = "*required*" if required else shown_default(schema.get("default"))
    meaning = " ".join(schema.get("description", "").split()).replace("|", "\\|")
    meaning = re.sub(r" Default: \S+\.$", "", meaning)
    stem, _, change = meaning.rpartition(" A change ")
    effect = {"is live.": "is live", "rolls the pods.": "rolls the pods"}.get(change, "")
    return f"`{name}`", shown_type(schema), default, effect, stem if effect else meaning


def shown_default(default: Any) -> str:
    """Write a default as a user would; blocks have theirs in their own table."""
    return "" if default is None or isinstance(default, dict) else f"`{json.dumps(default)}`"


def shown_type(schema: Schema) -> str:
    """Write the type in words, with its bounds."""
    kind = schema.get("type", "object")
    if "enum" in schema:
        kind = ", ".join(f"`{value}`" for value in schema["enum"])
    elif schema.get("x-kubernetes-int-or-string"):
        kind = "quantity"
    elif kind == "array":
        kind = f"list of {shown_type(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), dict):
        kind = f"map of {shown_type(schema['additionalProperties'])}"
    elif any("with a unit" in rule["message"] for rule in schema.get("x-kubernetes-validations", ())):
        kind = "duration"
    if "minimum" in schema:
        kind += f" from {schema['minimum']}"
    if "maximum" in schema:
        kind += f" to {schema['maximum']}"
    return kind


GENERATORS: dict[str, Callable[[], str]] = {
    "spec": spec_reference,
    "status": status_reference,
    "pool": pool_reference,
    "metrics of the engine sidecar": sidecar_metrics,
    "metrics of the picker": lambda: module_metrics(gateway_metrics),
    "metrics of the relay": lambda: module_metrics(relay_metrics),
    "metrics of the operator": lambda: module_metrics(operator_metrics),
    **{f"figures of {study}": lambda study=study: headlines(study) for study in HEADLINES},
    "choices": choices,
    "live ratios": live_ratios,
    **{
        f"known error, {name}": lambda engine=engine: known_error(*engine)
        for name, engine in SIMULATED_ENGINES.items()
    },
    "packages": packages,
    **{
        f"parameters of {name}": lambda name=name: policy_parameters(name) for name in registry.policy_names()
    },
    **{f"methods of {name}": lambda name=name: policy_methods(name) for name in MODULES},
}


def filled(page: str) -> str:
    """Fill a page: every generated part is made anew; raises KeyError for a part nobody makes."""

    def fill(match: re.Match[str]) -> str:
        return f"{match['name']} -->\n{GENERATORS[match['name']]()}"

    return BLOCK.sub(fill, page)


def main(check: bool) -> int:
    """Write or compare every page; returns the exit status."""
    status = 0
    for name in PAGES:
        path = ROOT / name
        page = path.read_text()
        wanted = filled(page)
        if wanted == page:
            continue
        status = 1 if check else 0
        print(f"{name} {'is stale: run `make generate`' if check else 'written'}")
        if not check:
            path.write_text(wanted)
    return status


if __name__ == "__main__":
    sys.exit(main(check=sys.argv[1:] == ["--check"]))
