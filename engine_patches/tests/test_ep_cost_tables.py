"""Operator tables: composed as the engine runs them, exact on their rows, straight between them."""

import gzip

import pytest

from headrace_engine.cost import tables
from headrace_engine.cost.model import Batch, Profile, chunk_work

PROFILE = Profile("a model", "a GPU", 1, "an engine", "made up for a test")
LAYERS = 4
MS = 1e-3


def attention_us(chunk, context, decodes, length):
    """Straight in every axis, dearer when mixed."""
    together = 3.0 if chunk and decodes else 0.0
    return 5 + 0.01 * chunk + 0.001 * chunk * context + 0.002 * decodes * length + together


def write(folder, name, header, rows, *, packed=False):
    text = "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
    if packed:
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / f"{name}.csv").write_text(text)


def rows():
    for chunk in (0, *tables.CHUNKS):
        for context in tables.CONTEXTS if chunk else (0,):
            for decodes in (0, *tables.DECODES):
                for length in tables.DOUBLING if decodes else (0,):
                    if chunk or decodes:
                        yield chunk, context, decodes, length, attention_us(chunk, context, decodes, length)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write(folder, "attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", rows(), packed=True)
    dense = {"qkv_proj": 10, "layernorm": 1, "embedding": 7, "final_layernorm": 2}
    sizes = (1, 8, 16, 2048)
    each = [(name, size, us * (1 + size / 1000)) for name, us in dense.items() for size in sizes]
    write(folder, "dense", "layer,tokens,time_us", each)
    write(folder, "per_sequence", "layer,sequences,time_us", [("lm_head", 1, 100), ("lm_head", 128, 227)])
    return folder


@pytest.fixture(scope="module")
def cost(folder):
    return tables.load_tables(folder, PROFILE, LAYERS)


def dense_us(tokens):
    return (7 + 2 + LAYERS * (10 + 2 * 1)) * (1 + tokens / 1000)


@pytest.mark.parametrize(
    ("chunk", "context", "decodes", "length"),
    [(0, 0, 8, 1024), (0, 0, 48, 700), (512, 0, 0, 0), (300, 100, 0, 0), (300, 100, 20, 3000)],
)
def test_a_step_is_its_operators(cost, chunk, context, decodes, length):
    """Up to a microsecond for what lies between the rows of more than one axis."""
    batch = Batch(chunk, chunk_work(chunk, context), decodes, decodes * length, int(chunk > 0))
    sequences = decodes + (chunk > 0)
    expected = (
        dense_us(chunk + decodes)
        + 100
        + (sequences - 1)
        + LAYERS * attention_us(chunk, context, decodes, length)
    )
    assert cost.step_seconds(batch) == pytest.approx(expected * 1e-6, rel=1e-9)


def test_further_chunks_cost_what_the_first_adds(cost):
    one = Batch(256, chunk_work(256, 64), 16, 16_000, 1)
    two = Batch(512, 2 * chunk_work(256, 64), 16, 16_000, 2)
    least = cost.attention_seconds(Batch(16, chunk_work(16, 0), 16, 16_000, 1))
    first = cost.attention_seconds(one)
    assert cost.attention_seconds(two) == pytest.approx(first + (first - least), rel=1e-6)


def test_cuda_graphs_pad_up_to_the_largest_captured(folder):
    padded = tables.load_tables(folder, PROFILE, LAYERS, captured=(1, 2, 4, 8, 16))
    plain = tables.load_tables(folder, PROFILE, LAYERS)
    for tokens, runs_as in ((3, 4), (8, 8), (9, 16), (17, 17), (2000, 2000)):
        assert padded.dense[tokens] == plain.dense[runs_as]
    assert padded.dense[0] == 0


def test_beyond_the_last_row_it_goes_on_straight(cost):
    assert cost.dense[4096] == pytest.approx(dense_us(4096) * 1e-6)
    batch = Batch(decodes=256, decode_context=256 * 20_000)
    assert cost.attention_seconds(batch) == pytest.approx(LAYERS * attention_us(0, 0, 256, 20_000) * 1e-6)


def test_an_incomplete_table_says_which_row_is_missing(folder, tmp_path):
    for name in ("dense.csv", "per_sequence.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    kept = [row for row in rows() if row[:4] != (512, 64, 8, 1024)]
    write(tmp_path, "attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", kept)
    with pytest.raises(ValueError, match=r"attention.csv: no row with .* = \(512, 64, 8, 1024\)"):
        tables.load_tables(tmp_path, PROFILE, LAYERS)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(OSError, match=r"attention\.csv"):
        tables.load_tables(tmp_path, PROFILE, LAYERS)
