"""Cases to predict, one row of a CSV file each: a model on GPUs, vLLM's settings, and a load in words.

Columns, all of which must be there: `id`; `cost_model` (`llama-3-8b|H100-SXM-80G|tp1`; empty: found by
`model`, `gpu` and `tp`); `gpu`; `tp`, GPUs per replica; `replicas`; `model`; `vllm`, a version; `arrivals`
(`constant`, `poisson`, `gamma, burstiness 50`, `closed`, `all at once`, `as recorded`); `rate_rps` of all
replicas together; `concurrency`, requests in flight of `closed` and the number of them of `all at once`;
`prompt_tokens` and `output_tokens`, means; `prefix` (`off`, `none shared`, `unknown`, `100 prompts
cycled`); `max_num_seqs`, `max_num_batched_tokens` (a number, or `default`); `kv_blocks_16`, KV blocks of 16
tokens where known. `duration_s`, seconds of arrivals, and `note` may be there; others are not looked at.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from headrace_engine.cost import catalog
from headrace_engine.cost.model import CostModel
from headrace_operator.simulate import models
from headrace_operator.simulate.usage_error import UsageError

COLUMNS = (
    *("id", "cost_model", "gpu", "tp", "replicas", "model", "vllm", "arrivals", "rate_rps", "concurrency"),
    *("prompt_tokens", "output_tokens", "prefix", "max_num_seqs", "max_num_batched_tokens", "kv_blocks_16"),
)
ARRIVALS = "constant, poisson, 'gamma, burstiness N', closed, all at once, as recorded"
PREFIXES = "off, none shared, unknown, 'N prompts cycled'"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Case:
    """One row; what it does not say and had to be assumed is in `assumed`."""

    id: str
    cost: CostModel
    vllm: tuple[int, int]
    replicas: int
    process: str  # of arrivals: constant, poisson, gamma, closed, at once
    rate: float  # requests per second to all replicas; 0 for closed and at once
    burstiness: float  # shape of the gamma distribution
    concurrency: int  # in flight, or the number at once
    prompt_tokens: float
    output_tokens: float
    prefix_caching: bool
    cycle: int  # prompts that are sent in turn; 0: all differ
    max_num_seqs: int | None  # None: vLLM's default
    max_num_batched_tokens: int | None
    kv_blocks: int | None  # of 16 tokens; None: what the GPU's memory leaves
    seconds: float | None  # of arrivals; None: not said
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unpredictable:
    """A row that is in order, but for which something is missing here."""

    id: str
    why: str


def read_cases(path: Path) -> list[Case | Unpredictable]:
    """Read every row; raises UsageError that names row, column and what is known, for the first bad one."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(
                    f"{path}: no column {', '.join(missing)}; a list of cases has {', '.join(COLUMNS)}"
                )
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
    if not rows:
        raise UsageError(f"{path}: no cases; each row below the names of the columns is one")
    cases, seen = [], set[str]()
    for line, row in rows:
        cells = {name: (value or "").strip() for name, value in row.items() if name}
        case = _read(_Row(f"{path}, row {line}", cells))
        if case.id in seen:
            raise UsageError(f"{path}, row {line}, column id: another row is called {case.id!r} too")
        seen.add(case.id)
        cases.append(case)
    return cases


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    cells: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells.get(column, "")

    def wrong(self, column: str, wanted: str) -> UsageError:
        return UsageError(f"{self.place}, column {column}: {self[column]!r} is not {wanted}")

    def number(self, column: str) -> float:
        """Read a number above 0."""
        try:
            value = float(self[column])
        except ValueError:
            value = 0.0
        if not isfinite(value) or value <= 0:
            raise self.wrong(column, "a number above 0")
        return value

    def whole(self, column: str) -> int:
        """Read a whole number from 1 on."""
        if not re.fullmatch(r"\d{1,9}", self[column]) or int(self[column]) < 1:
            raise self.wrong(column, "a whole number from 1 on")
        return int(self[column])

    def setting(self, column: str) -> int | None:
        """Read a whole number; None for vLLM's default."""
        return None if self[column] in ("", DEFAULT) else self.whole(column)


def _read(row: _Row) -> Case | Unpredictable:
    if not row["id"]:
        raise row.wrong("id", "a name")
    assumed: list[str] = []
    prompt, output = row.number("prompt_tokens"), row.number("output_tokens")
    process, burstiness = _process(row, assumed)
    caching, cycle = _prefix(row, assumed)
    open_loop = process not in ("closed", "at once")
    rate = row.number("rate_rps") if open_loop else 0.0
    concurrency = 0 if open_loop else _concurrency(row, process)
    seconds = row.number("duration_s") if row["duration_s"] else None
    limits = row.setting("max_num_seqs"), row.setting("max_num_batched_tokens"), row.setting("kv_blocks_16")
    replicas, version = row.whole("replicas"), _version(row)
    if replicas > 1 and not open_loop:
        raise row.wrong("replicas", f"1, which it must be where arrivals are {row['arrivals']!r}")
    if replicas > 1:
        assumed.append("each request goes to a replica by chance")
    try:
        cost = _cost(row)
    except catalog.UnknownProfileError as error:
        return Unpredictable(row["id"], str(error))
    return Case(
        row["id"],
        cost,
        version,
        replicas,
        process,
        rate,
        burstiness,
        concurrency,
        prompt,
        output,
        caching,
        cycle,
        *limits,
        seconds,
        tuple(assumed),
    )


def _process(row: _Row, assumed: list[str]) -> tuple[str, float]:
    text = row["arrivals"].lower()
    gamma = re.fullmatch(r"gamma, burstiness (\d+(?:\.\d+)?)", text)
    if gamma and float(gamma[1]) > 0:
        return "gamma", float(gamma[1])
    known = {"constant": "constant", "poisson": "poisson", "closed": "closed", "all at once": "at once"}
    if text in known:
        return known[text], 1.0
    if text == "poisson, as recorded":
        return "poisson", 1.0
    if text == "as recorded":
        assumed.append("arrivals are Poisson")
        return "poisson", 1.0
    raise row.wrong("arrivals", f"one of {ARRIVALS}")


def _prefix(row: _Row, assumed: list[str]) -> tuple[bool, int]:
    text = row["prefix"].lower()
    cycled = re.fullmatch(r"(\d+) prompts cycled( \(inferred\))?", text)
    if cycled and int(cycled[1]) > 0:
        return True, int(cycled[1])
    if text == "unknown":
        assumed.append("no prompts begin alike")
    elif text not in ("off", "none shared"):
        raise row.wrong("prefix", f"one of {PREFIXES}")
    return text != "off", 0


def _concurrency(row: _Row, process: str) -> int:
    noted = re.match(r"(\d+) requests", row["note"])
    if process == "at once" and not row["concurrency"] and noted:
        return int(noted[1])
    return row.whole("concurrency")


def _version(row: _Row) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", row["vllm"])
    if found is None:
        raise row.wrong("vllm", "a version of vLLM, such as 0.15.1")
    return int(found[1]), int(found[2])


def _cost(row: _Row) -> CostModel:
    """Find the cost model by its own name, else by model, GPU and number of GPUs."""
    gpus = row.whole("tp")
    if row["gpu"].lower() not in {name.lower() for name in models.list_known("gpu")}:
        raise row.wrong("gpu", f"one of {', '.join(models.list_known('gpu'))}")
    named = re.fullmatch(r"(?P<model>[^|]+)\|(?P<gpu>[A-Za-z0-9]+)[^|]*\|tp(?P<tp>\d+)", row["cost_model"])
    if named:
        try:
            return catalog.find_cost_model(named["model"], named["gpu"], int(named["tp"]))
        except catalog.UnknownProfileError as error:
            raise UsageError(f"{row.place}, column cost_model: {error}") from error
    if row["cost_model"]:
        raise row.wrong("cost_model", "MODEL|GPU|tpN, such as llama-3-8b|H100|tp1")
    if not row["model"]:
        raise row.wrong("model", "the name of a model")
    known = models.find_family(row["model"])
    return catalog.find_cost_model(known[0] if known else row["model"], row["gpu"], gpus)
