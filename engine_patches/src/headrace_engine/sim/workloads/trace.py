"""Traces from files: CSV or JSON lines, plain or gzipped, in any of the column names of `FORMS`.

Ours are those of the finished-request log. Times are numbers or ISO dates; the first request arrives at 0.
A row that can't be used ends the reading with one line that names file, row and column, or is skipped and
told about where the caller asks for that. Rows are counted as an editor counts lines, the header included.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace_engine.sim.workloads.arrival import Arrival

LONGEST = 10_000_000  # tokens; no model's context comes near it
MOONCAKE_BLOCK = 512  # tokens that one of Mooncake's hash ids stands for
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
UNTIMED = (
    "is missing: a turn that begins `delay` after the answer before it has no time of its own; give each row "
    "the time at which it came"
)


class TraceError(ValueError):
    """A trace that can't be used; one line that names file, row and column.

    `skippable`: reading with `skip` would leave that row out.
    """

    def __init__(self, message: str, *, skippable: bool = False) -> None:
        super().__init__(message)
        self.skippable = skippable


@dataclass(frozen=True, slots=True)
class Form:
    """Column names of one kind of trace; a time unit is `1 / per_second` seconds."""

    time: str
    prompt: str
    output: str
    per_second: float = 1.0
    prefix: str = "prefix"
    prefix_block: int | None = None  # None: the column `prefix_block` says it


FORMS = (
    Form("arrival_time", "prompt_tokens", "output_tokens"),
    Form("at", "prompt_tokens", "output_tokens"),
    Form("TIMESTAMP", "ContextTokens", "GeneratedTokens"),  # Azure Public Dataset, LLM inference traces
    Form("timestamp", "input_length", "output_length", 1000, "hash_ids", MOONCAKE_BLOCK),  # Mooncake, FAST'25
    Form("arrived_at", "num_prefill_tokens", "num_decode_tokens"),  # Vidur
    Form("Timestamp", "Request tokens", "Response tokens"),  # BurstGPT
)


@dataclass(frozen=True, slots=True)
class Trace:
    """What a file held. `start`: the first request's time as it stands there, in seconds (of an ISO date,
    unix seconds). `skipped` has one line for each row that could not be used.
    """

    arrivals: list[Arrival]
    start: float
    skipped: list[str]


def read_trace(path: Path, *, longest: int | None = None, skip: bool = False) -> Trace:
    """Read the requests of a trace file, sorted by arrival; raises TraceError.

    `longest`: tokens that the model allows for prompt and output together. `skip`: leave unusable rows out
    instead of raising; missing columns and an empty file raise all the same.
    """
    read: list[tuple[int, Arrival]] = []
    skipped: list[tuple[int, str]] = []
    form: Form | None = None
    for number, row in _rows(path, skipped if skip else None):
        if form is None:
            form = _form(row, path)
        try:
            arrival = _arrival(row, form, longest or LONGEST)
            if not skip and read:
                _check_order(read[-1][1], arrival, form)
        except _BadField as error:
            message = f"{path}, row {number}, column {error.column}: {error.reason}"
            if not skip:
                raise TraceError(message, skippable=True) from None
            skipped.append((number, message))
            continue
        read.append((number, arrival))
    if form is not None and skip:
        read, unsorted = _split_sorted(read)
        skipped += [
            (number, f"{path}, row {number}, column {form.time}: out of order") for number in unsorted
        ]
    lines = [line for _, line in sorted(skipped)]
    if not read:
        why = f", {len(lines)} skipped, first: {lines[0]}" if lines else ""
        raise TraceError(f"{path}: holds no requests{why}")
    start = read[0][1].at
    return Trace([replace(arrival, at=arrival.at - start) for _, arrival in read], start, lines)


def read_lengths(path: Path) -> list[Arrival]:
    """Read the requests of a file without times, in Vidur's columns, all arriving at 0; raises TraceError."""
    form = Form("", "num_prefill_tokens", "num_decode_tokens")
    found = []
    for number, row in _rows(path, None):
        try:
            prompt, output = (_length(row, column, 1, LONGEST) for column in (form.prompt, form.output))
        except _BadField as error:
            raise TraceError(f"{path}, row {number}, column {error.column}: {error.reason}") from None
        found.append(Arrival(0.0, prompt, output))
    return found


class _BadField(Exception):  # noqa: N818  (it never leaves this module)
    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.reason = reason


def _rows(path: Path, skipped: list[tuple[int, str]] | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield rows with their line numbers; lines that are none go to `skipped`, or raise if that is None."""
    is_json = any(suffix in JSON_SUFFIXES for suffix in path.suffixes[-2:])
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            if not is_json:
                table = csv.DictReader(file)
                for row in table:
                    yield table.line_num, row
                return
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                    reason = "" if isinstance(record, dict) else "is no JSON object"
                except (ValueError, RecursionError):
                    record, reason = {}, "is no JSON object"
                if not reason:
                    yield number, record
                elif skipped is None:
                    raise TraceError(
                        f"{path}, row {number}: {reason}; each line must hold one", skippable=True
                    )
                else:
                    skipped.append((number, f"{path}, row {number}: {reason}"))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(f"{path}: can't be read: {reason}") from None


def _form(row: Mapping[str, Any], path: Path) -> Form:
    for form in FORMS:
        if {form.time, form.prompt, form.output} <= row.keys():
            return form
    best = max(FORMS, key=lambda form: len({form.time, form.prompt, form.output} & row.keys()))
    missing = [name for name in (best.time, best.prompt, best.output) if name not in row]
    has = ", ".join(str(name) for name in row) or "none"
    raise TraceError(f"{path}, row 1: column {' and '.join(missing)} missing; it has {has}")


def _arrival(row: Mapping[str, Any], form: Form, longest: int) -> Arrival:
    prompt = _length(row, form.prompt, 1, longest)
    output = _length(row, form.output, 1, longest)
    if prompt + output > longest:
        raise _BadField(
            form.prompt, f"prompt {prompt} and output {output} exceed the model's {longest} tokens"
        )
    prefix, block = _prefix(row, form, prompt)
    at = _seconds(row, form)
    return Arrival(at, prompt, output, prefix, block, str(row.get("client") or ""))


def _length(row: Mapping[str, Any], column: str, least: int, most: int) -> int:
    value = _plain(row.get(column))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise _BadField(column, f"{value!r} is no number") from None
    if not number.is_integer() or isinstance(value, bool):
        raise _BadField(column, f"{value} is no whole number of tokens")
    if not least <= number <= most:
        raise _BadField(column, f"{value} is not in {least} to {most} tokens")
    return int(number)


def _plain(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _seconds(row: Mapping[str, Any], form: Form) -> float:
    if form.time not in row:
        raise _BadField(form.time, UNTIMED if "delay" in row else "is missing")
    value = _plain(row[form.time])
    try:
        number = float(value) / form.per_second
    except (TypeError, ValueError, OverflowError):
        number = _date(value, form.time)
    if not math.isfinite(number):
        raise _BadField(form.time, f"{value} is no time")
    return number


def _check_order(before: Arrival, arrival: Arrival, form: Form) -> None:
    if arrival.at < before.at:
        late = before.at - arrival.at
        raise _BadField(form.time, f"{late:g} s before the row above it; sort the rows by this column")


def _split_sorted(read: Sequence[tuple[int, Arrival]]) -> tuple[list[tuple[int, Arrival]], list[int]]:
    """Return the most rows that are sorted by time, and the numbers of the others.

    So one row that another clock wrote is left out, wherever it stands, and not all that come after it.
    """
    ends: list[float] = []  # of the sorted rows of each count, the least that they can end with
    last: list[int] = []  # the place of that row
    before: list[int] = []  # of each row: the place of the one that it follows
    for place, (_, arrival) in enumerate(read):
        count = bisect_right(ends, arrival.at)
        before.append(last[count - 1] if count else -1)
        ends[count : count + 1], last[count : count + 1] = [arrival.at], [place]
    kept: set[int] = set()
    place = last[-1] if last else -1
    while place >= 0:
        kept.add(place)
        place = before[place]
    return (
        [row for place, row in enumerate(read) if place in kept],
        [number for place, (number, _) in enumerate(read) if place not in kept],
    )


def _date(value: object, column: str) -> float:
    """Return the unix seconds of an ISO date; without a zone it is UTC."""
    try:
        date = datetime.fromisoformat(str(value))
    except ValueError:
        raise _BadField(column, f"{value!r} is neither seconds nor an ISO date") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _prefix(row: Mapping[str, Any], form: Form, prompt: int) -> tuple[tuple[int, ...], int]:
    ids = row.get(form.prefix)
    if not ids or not isinstance(ids, list):
        return (), 0
    block = form.prefix_block or _length(row, "prefix_block", 1, LONGEST)
    if not all(isinstance(each, int) for each in ids):
        raise _BadField(form.prefix, "holds something else than whole numbers")
    if (len(ids) - 1) * block >= prompt:
        raise _BadField(form.prefix, f"{len(ids)} blocks of {block} tokens, but the prompt has {prompt}")
    return tuple(ids), block
