"""Measured times of single operators on a GPU, and what lies between the measured sizes.

The tables are those of `e2e/data/operators` (SOURCES.md beside them): matrix products, attention of prompts
and of decodes, all-reduces; bf16, heads of 128; milliseconds there, seconds here. Between its sizes a table
is straight in the logarithms of size and time, as a kernel is that keeps its efficiency; beyond its last size
time grows with the work, below its first it stays.
"""

from __future__ import annotations

import csv
import functools
import gzip
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from e2e.cluster.places import REPOSITORY

FOLDER = REPOSITORY / "e2e/data/operators"
MS = 1e-3
LARGEST = 16384  # of n and k; the table is coarse beyond, so that two halves are taken

Heads = tuple[int, int]  # query heads, KV heads of one GPU
Line = Mapping[int, float]  # time by size, ascending
Plane = Mapping[int, Line]  # time by decodes, then context; every line has the same sizes


@dataclass(frozen=True, slots=True)
class Operators:
    """The tables of one GPU."""

    matrices: Mapping[tuple[int, int], Line]  # by n and k, then m
    prompts: Mapping[Heads, Line]  # by tokens of one prompt
    decodes: Mapping[Heads, Plane]
    all_reduces: Mapping[tuple[int, str], Line]  # by GPUs and "graph" or "eager", then elements

    def matrix(self, m: float, n: int, k: int) -> float:
        """Return the time of a product of m x k and k x n."""
        if n > LARGEST:
            return 2 * self.matrix(m, n // 2, k)
        if k > LARGEST:
            return 2 * self.matrix(m, n, k // 2)
        sizes = sorted({n for n, _ in self.matrices})
        return exp(
            sum(
                down * right * log(at(self.matrices[rows, columns], m))
                for rows, down in around(sizes, n)
                for columns, right in around(sizes, k)
            )
        )

    def prompt(self, heads: Heads, tokens: float) -> float:
        """Return the time of causal attention over one prompt, none of it computed before."""
        return sum(
            share * at(self.prompts[pair], tokens, order=2) for pair, share in _like(self.prompts, heads)
        )

    def decode(self, heads: Heads, decodes: int, context: float) -> float:
        """Return the time of attention for so many decodes of that context each.

        Where every query head has a KV head of its own, so many decodes are as many more with fewer heads:
        what the kernel does is by decode and KV head.
        """
        queries, kv = heads
        if heads not in self.decodes and queries == kv:
            most = max(q for q, own in self.decodes if q == own and kv % own == 0)
            heads, decodes = (most, most), decodes * (kv // most)
        return sum(
            share * _decode(self.decodes[pair], decodes, context)
            for pair, share in _like(self.decodes, heads)
        )

    def all_reduce(self, gpus: int, elements: float, *, graph: bool) -> float:
        """Return the time to add up `elements` numbers over the GPUs, within a CUDA graph or not."""
        return at(self.all_reduces[gpus, "graph" if graph else "eager"], elements)


def around(sizes: Sequence[int], size: float) -> Iterator[tuple[int, float]]:
    """Yield the sizes beside `size`, one or two, with their shares of the logarithm."""
    above = bisect_right(sizes, size)
    if above == 0 or above == len(sizes) or sizes[above - 1] == size:
        yield sizes[max(above - 1, 0)], 1.0
        return
    lower, upper = sizes[above - 1], sizes[above]
    share = log(size / lower) / log(upper / lower)
    yield lower, 1 - share
    yield upper, share


def at(line: Line, size: float, order: int = 1) -> float:
    """Return the time at a size; beyond the last one it grows with the size to the `order`."""
    sizes = list(line)
    inside = exp(sum(share * log(line[each]) for each, share in around(sizes, size)))
    return float(inside * max(size / sizes[-1], 1.0) ** order)


def _decode(plane: Plane, decodes: int, context: float) -> float:
    beyond = max(decodes / max(plane), 1.0)
    return beyond * exp(
        sum(share * log(at(plane[row], context)) for row, share in around(list(plane), decodes))
    )


def _like(tables: Mapping[Heads, object], heads: Heads) -> list[tuple[Heads, float]]:
    """Find these heads, or those with as many KV heads and fewer and more query heads, with their shares."""
    if heads in tables:
        return [(heads, 1.0)]
    queries, kv = heads
    known = sorted(pair[0] for pair in tables if pair[1] == kv)
    if not known or not known[0] < queries < known[-1]:
        raise ValueError(f"no attention is measured for {queries} query heads with {kv} KV heads")
    above = bisect_right(known, queries)
    lower, upper = known[above - 1], known[above]
    share = (queries - lower) / (upper - lower)
    return [((lower, kv), 1 - share), ((upper, kv), share)]


@functools.cache
def read_operators(gpu: str, folder: Path = FOLDER) -> Operators:
    """Read the tables of `gpu`; raises OSError without one."""
    name = gpu.lower()
    matrices: dict[tuple[int, int], dict[int, float]] = {}
    for m, n, k, latency in _rows(folder / f"{name}_gemm.csv.gz"):
        matrices.setdefault((int(n), int(k)), {})[int(m)] = latency * MS
    prompts: dict[Heads, dict[int, float]] = {}
    for batch, tokens, _, queries, kv, latency in _rows(folder / f"{name}_prompt_attention.csv.gz"):
        if batch == 1:
            prompts.setdefault((int(queries), int(kv)), {})[int(tokens)] = latency * MS
    decodes: dict[Heads, dict[int, dict[int, float]]] = {}
    for batch, _, step, queries, kv, latency in _rows(folder / f"{name}_decode_attention.csv.gz"):
        plane = decodes.setdefault((int(queries), int(kv)), {})
        plane.setdefault(int(batch), {})[int(step) + 1] = latency * MS
    reduces: dict[tuple[int, str], dict[int, float]] = {}
    for gpus, kind, elements, time in _cells(folder / f"{name}_all_reduce.csv.gz"):
        reduces.setdefault((int(gpus), kind), {})[int(elements)] = float(time) * MS
    return Operators(
        {key: _ascending(line) for key, line in matrices.items()},
        {key: _ascending(line) for key, line in prompts.items()},
        {key: complete(plane) for key, plane in decodes.items()},
        {key: _ascending(line) for key, line in reduces.items()},
    )


def complete(plane: Plane) -> Plane:
    """Give every line all contexts: where so many decodes had no room, time grows with their number."""
    contexts = sorted({context for line in plane.values() for context in line})
    full: dict[int, dict[int, float]] = {}
    fewer, below = 0, dict[int, float]()
    for decodes, line in sorted(plane.items()):
        grown = {context: seconds * decodes / fewer for context, seconds in below.items()}
        known = grown | dict(line)
        fewer, below = decodes, {context: known[context] for context in contexts if context in known}
        full[decodes] = below
    return full


def _ascending(line: Line) -> Line:
    return dict(sorted(line.items()))


def _rows(path: Path) -> Iterator[list[float]]:
    return ([float(cell) for cell in row] for row in _cells(path))


def _cells(path: Path) -> Iterator[list[str]]:
    """Yield the rows below the header."""
    rows = csv.reader(gzip.decompress(path.read_bytes()).decode().splitlines())
    next(rows)
    return rows
