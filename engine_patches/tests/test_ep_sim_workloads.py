"""Traces are read in six kinds of columns; what can't be used is named by file, row and column."""

import contextlib
import gzip
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.sim.workloads import trace
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.trace import TraceError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
OURS = "arrival_time,prompt_tokens,output_tokens\n"


def written(folder, text, name="trace.csv"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", OURS + "1700000000.5,10,5\n1700000002.0,20,6\n"),
        ("b.csv", "prompt_tokens,at,output_tokens,ttft\n10,3,5,0.1\n20,4.5,6,0.1\n"),
        ("c.csv", OURS + "2026-01-01T00:00:00.5Z,10,5\n2026-01-01T01:00:02+01:00,20,6\n"),
        ("d.csv", AZURE + "2023-11-16 18:15:46.6805900,10,5\n2023-11-16 18:15:48.1805900,20,6\n"),
        ("e.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,5\n1.5,20,6\n"),
        (
            "burst.csv",
            "Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,10,5\n6.5,GPT-4,20,6\n",
        ),
        ("f.csv", "\ufeff" + OURS + "1,10.0,5\n2.5,20,6\n"),
        (
            "g.jsonl",
            """{"timestamp": 1000, "input_length": 10, "output_length": 5}\n
            {"timestamp": 2500, "input_length": 20, "output_length": 6}\n""",
        ),
        (
            "h.ndjson",
            """{"at": 7, "prompt_tokens": 10, "output_tokens": 5}
            {"at": 8.5, "prompt_tokens": 20, "output_tokens": 6}\n""",
        ),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_kinds_of_traces(tmp_path, name, text, zipped):
    path = written(tmp_path, text, name)
    if zipped:
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text.encode()))
    first, second = trace.read_trace(path).arrivals
    assert first == Arrival(0.0, 10, 5)
    assert (second.prompt_tokens, second.output_tokens) == (20, 6)
    assert second.at == pytest.approx(1.5, abs=1e-6)


def test_prefixes_of_mooncake_and_ours(tmp_path):
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [3, 9]}
    (arrival,) = trace.read_trace(written(tmp_path, json.dumps(row), "mooncake.jsonl")).arrivals
    assert (arrival.prefix, arrival.prefix_block) == ((3, 9), 512)
    row = {"at": 0, "prompt_tokens": 40, "output_tokens": 5, "prefix": [1, 2, 3], "prefix_block": 16}
    (arrival,) = trace.read_trace(written(tmp_path, json.dumps(row | {"client": "a"}), "ours.jsonl")).arrivals
    assert (arrival.prefix, arrival.prefix_block, arrival.client) == ((1, 2, 3), 16, "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OURS + "0,10,5\n1,-3,5\n", "row 3, column prompt_tokens: -3 is not in 1 to 8192 tokens"),
        (OURS + "0,10,0\n", "row 2, column output_tokens: 0 is not in 1 to 8192 tokens"),
        (OURS + "0,1e99,5\n", "row 2, column prompt_tokens: 1e99 is not in 1 to 8192"),
        (OURS + "0,nan,5\n", "row 2, column prompt_tokens: nan is no whole number"),
        (OURS + "0,inf,5\n", "row 2, column prompt_tokens: inf is no whole number"),
        (OURS + "0,10.5,5\n", "row 2, column prompt_tokens: 10.5 is no whole number"),
        (OURS + "0,ten,5\n", "row 2, column prompt_tokens: 'ten' is no number"),
        (OURS + "0,10\n", "row 2, column output_tokens: None is no number"),
        (OURS + "0,8000,193\n", "column prompt_tokens: prompt 8000 and output 193 exceed the model's 8192"),
        (OURS + "nan,10,5\n", "row 2, column arrival_time: nan is no time"),
        (OURS + "soon,10,5\n", "row 2, column arrival_time: 'soon' is neither seconds nor an ISO date"),
        (OURS + ",10,5\n", "row 2, column arrival_time: '' is neither"),
    ],
)
def test_a_bad_row_is_named_or_skipped(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as error:
        trace.read_trace(path, longest=8192)
    assert error.value.skippable
    assert str(error.value).startswith(f"{path}, row ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    path.write_text(text + "9,10,5\n")
    read = trace.read_trace(path, longest=8192, skip=True)
    assert len(read.skipped) == 1
    assert message in read.skipped[0]
    assert read.arrivals


def test_rows_out_of_order_are_named(tmp_path):
    path = written(tmp_path, OURS + "5,10,5\n4.5,10,5\n")
    with pytest.raises(TraceError, match=r"row 3, column arrival_time: 0\.5 s before the row above it; sort"):
        trace.read_trace(path)


@pytest.mark.parametrize(
    ("times", "left_out"),
    [
        ((9e9, 1, 2, 3), {2}),  # what the first row's clock says
        ((1, 2, 9e9, 3, 4), {4}),
        ((5, 6, 0, 7), {4}),
        ((1, 1, 1), set()),
        ((3, 2, 1), {2, 3}),
    ],
)
def test_of_rows_that_are_not_in_order_as_few_as_can_be_are_skipped(tmp_path, times, left_out):
    path = written(tmp_path, OURS + "".join(f"{at},{10 + row},5\n" for row, at in enumerate(times, 2)))
    read = trace.read_trace(path, skip=True)
    assert read.skipped == [f"{path}, row {row}, column arrival_time: out of order" for row in left_out]
    kept = [(at, 10 + row) for row, at in enumerate(times, 2) if row not in left_out]
    assert [(each.at + read.start, each.prompt_tokens) for each in read.arrivals] == kept


def test_turns_that_begin_after_the_answer_before_them_are_named_or_skipped(tmp_path):
    first = {"timestamp": 237, "input_length": 600, "output_length": 80, "hash_ids": [0, 1]}
    later = {"delay": 500, "input_length": 900, "output_length": 60, "hash_ids": [0, 1]}
    path = written(tmp_path, "\n".join(map(json.dumps, (first, later, first))), "mooncake.jsonl")
    with pytest.raises(TraceError, match="row 2, column timestamp: is missing: a turn that begins `delay`"):
        trace.read_trace(path)
    read = trace.read_trace(path, skip=True)
    assert (len(read.arrivals), len(read.skipped)) == (2, 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "arrival_time,prompt_tokens\n0,1\n", "column output_tokens missing; it has arrival_time"),
        ("t.csv", "a,b\n1,2\n", "missing; it has a, b"),
        ("t.csv", OURS, "holds no requests"),
        ("t.csv", "", "holds no requests"),
        ("t.jsonl", "[1]\n", "row 1: is no JSON object; each line must hold one"),
        ("t.jsonl", "{\n", "row 1: is no JSON object"),
        ("t.jsonl", "[" * 100_000, "row 1: is no JSON object"),
        ("t.csv.gz", "plain", "can't be read"),
        ("t.csv", OURS + "0,-1,1\n", "column prompt_tokens"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, name, text, message):
    path = written(tmp_path, text, name)
    with pytest.raises(TraceError) as error:
        trace.read_trace(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    with pytest.raises(TraceError):  # a skip does not help where nothing is left
        trace.read_trace(path, skip=True)


def test_no_file(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        trace.read_trace(tmp_path / "missing.csv")


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, 9000), st.integers(1, 9000)), min_size=1, max_size=20
    )
)
def test_what_is_written_is_read(tmp_path_factory, rows):
    rows.sort(key=lambda row: row[0])
    text = OURS + "".join(f"{at!r},{prompt},{output}\n" for at, prompt, output in rows)
    read = trace.read_trace(written(tmp_path_factory.mktemp("t"), text)).arrivals
    assert [(each.prompt_tokens, each.output_tokens) for each in read] == [row[1:] for row in rows]
    assert [each.at for each in read] == [at - rows[0][0] for at, _, _ in rows]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
COLUMNS = sorted(
    {name for form in trace.FORMS for name in (form.time, form.prompt, form.output, form.prefix)}
)


@settings(max_examples=100)
@given(
    st.lists(
        st.dictionaries(st.sampled_from([*COLUMNS, "prefix_block", "client", "delay"]), ANYTHING), max_size=5
    ),
    st.sampled_from([{}, *({each.time: 1, each.prompt: 9, each.output: 9} for each in trace.FORMS)]),
)
def test_nothing_but_trace_errors_comes_out_of_json(tmp_path_factory, rows, usual):
    path = tmp_path_factory.mktemp("t") / "trace.jsonl"
    path.write_text("".join(json.dumps(usual | row) + "\n" for row in rows))
    read, message = None, ""
    try:
        read = trace.read_trace(path, skip=True)
    except TraceError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1
    assert read is None or len(read.arrivals) + len(read.skipped) == len(rows)


@settings(max_examples=200)
@given(
    st.sampled_from(["trace.csv", "trace.jsonl", "trace.csv.gz"]),
    st.sampled_from([b"", OURS.encode(), gzip.compress(OURS.encode())[:20]]),
    st.binary(max_size=200),
    st.booleans(),
)
def test_nothing_but_trace_errors_comes_out_of_any_bytes(tmp_path_factory, name, beginning, rest, skip):
    path = tmp_path_factory.mktemp("t") / name
    path.write_bytes(beginning + rest)
    with contextlib.suppress(TraceError):
        trace.read_trace(path, skip=skip)


def test_dates_of_azure_keep_what_python_can_tell_apart():
    start = datetime(2023, 11, 16, 18, 15, 46, tzinfo=UTC)
    assert (
        trace._date("2023-11-16 18:15:46.6805900", "x")
        == (start + timedelta(microseconds=680590)).timestamp()
    )


def test_lengths_without_times(tmp_path):
    path = written(tmp_path, "num_prefill_tokens,num_decode_tokens\n3,4\n5,6\n")
    assert trace.read_lengths(path) == [Arrival(0, 3, 4), Arrival(0, 5, 6)]
    path.write_text("num_prefill_tokens,num_decode_tokens\n3,0\n")
    with pytest.raises(TraceError, match="row 2, column num_decode_tokens: 0 is not in"):
        trace.read_lengths(path)
