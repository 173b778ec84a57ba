"""The traces and length tables in this folder, by name; SOURCES.md has their sources and licences."""

import functools
from pathlib import Path

from headrace_engine.sim.workloads import servegen, trace
from headrace_engine.sim.workloads.arrival import Arrival

FOLDER = Path(__file__).parent


@functools.cache
def _trace(name: str) -> tuple[Arrival, ...]:
    return tuple(trace.read_trace(FOLDER / name).arrivals)


@functools.cache
def _lengths(name: str) -> tuple[Arrival, ...]:
    return tuple(trace.read_lengths(FOLDER / name))


def azure_code() -> tuple[Arrival, ...]:
    """Read an hour of a code completion service: 8,819 requests, 2.6/s on average, in bursts."""
    return _trace("azure2023_code.csv.gz")


def azure_conversation() -> tuple[Arrival, ...]:
    """Read an hour of a conversation service: 19,366 requests, 5.5/s on average, nearly Poisson."""
    return _trace("azure2023_conversation.csv.gz")


def mooncake() -> tuple[Arrival, ...]:
    """Read an hour of long conversations: 12,031 requests with prefix ids; times lie on a 3 s grid."""
    return _trace("mooncake_conversation.jsonl.gz")


def sharegpt() -> tuple[Arrival, ...]:
    """Read lengths of 10,000 ShareGPT conversations in Llama-2 tokens; no times."""
    return _lengths("sharegpt_lengths.csv.gz")


def arxiv() -> tuple[Arrival, ...]:
    """Read lengths of 28,257 arXiv summaries; no times."""
    return _lengths("arxiv_lengths.csv.gz")


@functools.cache
def servegen_clients(service: str) -> tuple[servegen.Client, ...]:
    """Read the clients of `m-small`, `m-large` or `deepseek-r1` that have published lengths."""
    rates, lengths = (FOLDER / f"servegen_{service}_{part}.csv.gz" for part in ("rates", "lengths"))
    return tuple(servegen.read_clients(rates, lengths))
