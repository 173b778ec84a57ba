"""A cost model composed from operator tables, in the form that LLMServingSim's profiler writes.

Three files, all `time_us`: `dense.csv` (layer, tokens), `per_sequence.csv` (layer, sequences) and
`attention.csv` (prefill_chunk, kv_prefill, n_decode, kv_decode: one prefill chunk with its context beside
equal decodes). Attention has three regimes, decodes only, prefill only and mixed, since together they cost up
to twice what they cost apart.

Between its rows a table is taken as straight along each axis: the work is tokens, chunk times context and
decodes times context, so it is straight where a kernel keeps its efficiency. On the rows of the tables that
are no corners of the grid this errs by 3 % in attention, log scales by 4 %. Beyond its last row it goes on
straight, below the first it stays.

A step is the layers' dense operators and attention, the embedding, the last norm, the head and the sampler.
CUDA graphs pad the tokens of a step to the next captured size, up to the largest one.

The tables know only decodes of equal context, and numbers of decodes that are powers of two. In the measured
run on an RTX PRO 6000 (`e2e/bench/validation/measured.py`) steps of 40 to 120 decodes took 0.6 to 2.9 ms
longer than composed, those of ten 0.4 ms: that points to attention over unequal contexts rather
than to host time.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace_engine.cost.grid import locate, read_line, read_plane
from headrace_engine.cost.model import Batch, Profile

MICROSECOND = 1e-6
ONCE = frozenset({"embedding", "final_layernorm"})  # per step; all other dense operators are per layer
TWICE = frozenset({"layernorm"})  # before attention and before the MLP
MAX_TOKENS = 16384  # dense times are laid out up to here
DOUBLING = tuple(16 * 2**power for power in range(11))  # the tables' complete grid; finer rows are partial
CHUNKS = DOUBLING[:8]  # of one prefill, to 2048 tokens
CONTEXTS = (0, *DOUBLING)
DECODES = tuple(2**power for power in range(8))

Row = tuple[int, int, int, int]  # prefill_chunk, kv_prefill, n_decode, kv_decode
Line = tuple[Sequence[int], Sequence[float]]  # sizes and seconds


@dataclass(frozen=True, slots=True)
class Tables:
    """A cost model: see `load_tables`. All times seconds per step."""

    profile: Profile
    dense: Sequence[float]  # by tokens of the step
    head: Sequence[float]  # by sequences
    decode_only: Sequence[Sequence[float]]  # by n_decode, kv_decode
    prefill_only: Sequence[Sequence[float]]  # by prefill_chunk, kv_prefill
    mixed: Sequence[Sequence[Sequence[Sequence[float]]]]  # by prefill_chunk, kv_prefill, n_decode, kv_decode

    def step_seconds(self, batch: Batch) -> float:
        """Return the seconds of one step; chunks of a step count as equally long."""
        sequences = batch.decodes + (max(batch.prefills, 1) if batch.prefill_tokens else 0)
        dense = self.dense[batch.prefill_tokens + batch.decodes]
        return dense + self.head[sequences] + self.attention_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S.

        The tables have one chunk beside the decodes. Further ones add what the first adds to the smallest.
        """
        decodes = batch.decodes
        if not batch.prefill_tokens:
            return self._decodes(decodes, batch.decode_context / decodes) if decodes else 0.0
        chunks = max(batch.prefills, 1)
        chunk = batch.prefill_tokens / chunks
        context = max(batch.prefill_work / batch.prefill_tokens - chunk / 2, 0.0)
        if not decodes:
            first = self._prefill(chunk, context)
            return first if chunks == 1 else first + (chunks - 1) * (first - self.prefill_only[0][0])
        mean = batch.decode_context / decodes
        first = self._mixed(chunk, context, decodes, mean)
        if chunks == 1:
            return first
        return first + (chunks - 1) * max(first - self._mixed(0, 0, decodes, mean), 0.0)

    def _decodes(self, decodes: float, context: float) -> float:
        return read_plane(self.decode_only, locate(DECODES, decodes), locate(DOUBLING, context))

    def _prefill(self, chunk: float, context: float) -> float:
        return read_plane(self.prefill_only, locate(CHUNKS, chunk), locate(CONTEXTS, context))

    def _mixed(self, chunk: float, context: float, decodes: float, mean: float) -> float:
        row, up = locate(CHUNKS, chunk)
        column, right = locate(CONTEXTS, context)
        decode, length = locate(DECODES, decodes), locate(DOUBLING, mean)
        seconds = 0.0
        for i, weight_i in ((row, 1 - up), (row + 1, up)):
            for j, weight_j in ((column, 1 - right), (column + 1, right)):
                weight = weight_i * weight_j
                if weight:
                    seconds += weight * read_plane(self.mixed[i][j], decode, length)
        return seconds


def load_tables(folder: Path, profile: Profile, layers: int, captured: Sequence[int] = ()) -> Tables:
    """Load the cost model of a GPU from the tables in `folder`, each plain or gzipped.

    `captured`: the token counts that CUDA graphs were captured for, ascending. Raises OSError without a
    table, ValueError where one is incomplete.
    """
    cells = {
        (int(chunk), int(context), int(decodes), int(length)): float(time_us) * MICROSECOND * layers
        for chunk, context, decodes, length, time_us in _rows(folder / "attention.csv")
    }

    def cell(*key: int) -> float:
        if key not in cells:
            names = "prefill_chunk, kv_prefill, n_decode, kv_decode"
            raise ValueError(f"{folder}/attention.csv: no row with {names} = {key}")
        return cells[key]

    dense = _operators(folder / "dense.csv")
    times = {name: 1 if name in ONCE else 2 * layers if name in TWICE else layers for name in dense}
    padded = [_padded(count, captured) for count in range(MAX_TOKENS + 1)]
    tokens, sequences = _sums(dense, times), _sums(_operators(folder / "per_sequence.csv"), {})
    return Tables(
        profile,
        [_straight(tokens, count) for count in padded],
        [_straight(sequences, count) for count in range(MAX_TOKENS + 1)],
        [[cell(0, 0, n, v) for v in DOUBLING] for n in DECODES],
        [[cell(c, k, 0, 0) for k in CONTEXTS] for c in CHUNKS],
        [[[[cell(c, k, n, v) for v in DOUBLING] for n in DECODES] for k in CONTEXTS] for c in CHUNKS],
    )


def _rows(path: Path) -> Iterator[list[str]]:
    """Yield the rows below the header; `path` itself or, if it is not there, its gzipped form."""
    text = (
        path.read_text()
        if path.exists()
        else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()).decode()
    )
    rows = csv.reader(text.splitlines())
    next(rows)
    return rows


def _operators(path: Path) -> dict[str, dict[int, float]]:
    """Return the seconds of each operator by its size."""
    operators: dict[str, dict[int, float]] = {}
    for name, size, time_us in _rows(path):
        operators.setdefault(name, {})[int(size)] = float(time_us) * MICROSECOND
    return operators


def _sums(operators: Mapping[str, Mapping[int, float]], times: Mapping[str, int]) -> Line:
    """Add up all operators at the sizes that all have, each as often as `times` says."""
    sizes = sorted(set.intersection(*(set(seconds) for seconds in operators.values())))
    return sizes, [sum(times.get(name, 1) * operators[name][size] for name in operators) for size in sizes]


def _padded(tokens: int, captured: Sequence[int]) -> int:
    index = bisect_left(captured, tokens)
    return captured[index] if tokens and index < len(captured) else tokens


def _straight(line: Line, size: int) -> float:
    """Return the seconds at `size`, along straight lines between the sizes; 0 for nothing."""
    sizes, seconds = line
    return read_line(seconds, locate(sizes, size)) if size else 0.0
