"""Cost models: what operators come to together, and that the catalogue has it."""

import dataclasses
import gzip

import pytest

from e2e.bench.cost_models import models_file, operators, study
from e2e.bench.cost_models.architectures import ARCHITECTURES, Architecture
from e2e.bench.cost_models.batches import random_steps
from e2e.bench.cost_models.composition import BANDWIDTH, LAUNCHES, REACHED, Composition, Step
from e2e.bench.cost_models.operators import Operators
from headrace_engine.cost import catalog

SMALL = Architecture(layers=3, hidden=1024, heads=8, kv_heads=2, ffn=2048, vocabulary=4096)
SIZES = (256, 1024, 4096, 16384, 65536)
CONTEXTS = (2, 64, 4096)
# a product takes its operations, a prompt the square of its tokens, decodes their contexts; in microseconds
MADE_UP = Operators(
    {(n, k): {m: m * n * k * 1e-12 for m in (1, 128, 8192)} for n in SIZES for k in SIZES},
    {heads: {tokens: heads[0] * tokens**2 * 1e-9 for tokens in (1, 64, 4096)} for heads in ((8, 2), (4, 1))},
    {
        heads: {count: {each: heads[1] * count * each * 1e-9 for each in CONTEXTS} for count in (1, 16)}
        for heads in ((8, 2), (4, 1))
    },
    {(2, "graph"): {1024: 5e-6, 2**20: 5.12e-3}, (2, "eager"): {1024: 20e-6, 2**20: 20.48e-3}},
)


def elementwise(tokens, gpus=1):
    numbers = tokens * (8 * 1024 + (2 * 12 * 128 + 3 * 2048) / gpus)
    return numbers * 2 / (REACHED * BANDWIDTH["H100"]) + LAUNCHES


def products(tokens, gpus=1):
    weights = 1024 * ((8 + 4) * 128 + 8 * 128 + 3 * 2048)
    return tokens * weights / gpus * 1e-12


def test_a_step_of_decodes_is_the_sum_of_its_operators():
    step = Step(contexts=(100, 300))
    layer = products(2) + 2 * 2 * 200 * 1e-9 + elementwise(2)
    head = 2 * 4096 * 1024 * 1e-12
    assert Composition(SMALL, "H100", 1, MADE_UP).step_seconds(step) == pytest.approx(3 * layer + head)


def test_a_chunk_costs_its_part_of_the_square_that_the_whole_prompt_takes():
    composition = Composition(SMALL, "H100", 1, MADE_UP)
    alone = 8 * 1000**2 * 1e-9
    behind = 8 * (4000**2 - 3000**2) * 1e-9
    rest = 3 * (products(1160) + elementwise(1160)) + 4096 * 1024 * 1e-12
    assert composition.step_seconds(Step(chunks=((1000, 0),))) == pytest.approx(3 * alone + rest)
    assert composition.step_seconds(Step(chunks=((1000, 3000),))) == pytest.approx(3 * behind + rest)


def test_two_gpus_share_the_work_and_add_up_twice_a_layer():
    composition = Composition(SMALL, "H100", 2, MADE_UP)
    head = 8 * 2048 * 1024 * 1e-12
    layer = products(8, 2) + 8 * 64 * 1e-9 + elementwise(8, 2) + 2 * 8 * 5e-6
    assert composition.step_seconds(Step(contexts=(64,) * 8)) == pytest.approx(3 * layer + head)
    long, longer = (composition.step_seconds(Step(contexts=(64,) * count)) for count in (512, 513))
    assert longer - long > 3 * 2 * 513 * 14e-6  # beyond the largest CUDA graph


def test_products_of_few_tokens_take_no_longer_than_reading_and_computing():
    slow = dict.fromkeys((1, 8), 1.0) | {16: 1.5, 128: 1.5, 1024: 2.0, 8192: 16.0}
    tables = dataclasses.replace(MADE_UP, matrices={(n, k): slow for n in SIZES for k in SIZES})
    composition = Composition(SMALL, "H100", 1, tables)
    per_token = 16.0 / 8192
    times = 3 * 4  # layers and matrices of each
    for tokens in (16, 64, 128):
        expected = times * (1 + (per_token * tokens) ** 2) ** 0.5
        assert composition.products(tokens) == pytest.approx(expected)
    assert composition.products(4) == pytest.approx(times * 1.0)
    assert composition.products(1024) == pytest.approx(times * 2.0)


def test_decodes_with_a_kv_head_for_each_query_head_are_more_decodes_with_fewer():
    heads = {(2, 2): {1: {2: 1.0, 4096: 1.0}, 16: {2: 16.0, 4096: 16.0}}, (8, 1): {1: {2: 9.0}}}
    tables = dataclasses.replace(MADE_UP, decodes=heads)
    assert tables.decode((8, 8), 4, 100) == pytest.approx(16.0)


def test_heads_between_those_measured_lie_between_them():
    tables = dataclasses.replace(MADE_UP, prompts={(6, 2): {1: 6.0}, (8, 2): {1: 8.0}, (8, 4): {1: 80.0}})
    assert tables.prompt((7, 2), 1) == pytest.approx(7.0)
    with pytest.raises(ValueError, match="9 query heads with 2 KV heads"):
        tables.prompt((9, 2), 1)


def test_sizes_beyond_the_tables_take_as_much_longer_as_they_are_more_work():
    assert MADE_UP.matrix(16384, 28672, 28672) == pytest.approx(16384 * 28672**2 * 1e-12)
    assert MADE_UP.prompt((8, 2), 8192) == pytest.approx(8 * 8192**2 * 1e-9)
    assert MADE_UP.decode((8, 2), 32, 8192) == pytest.approx(2 * 32 * 8192 * 1e-9)
    assert MADE_UP.decode((8, 2), 1, 1) == MADE_UP.decode((8, 2), 1, 2)


def test_decodes_that_were_too_many_to_measure_grow_with_their_number():
    plane = {2: {10: 1.0, 20: 2.0, 40: 4.0}, 4: {10: 3.0, 20: 5.0}, 8: {10: 7.0}}
    assert operators.complete(plane) == {
        2: {10: 1.0, 20: 2.0, 40: 4.0},
        4: {10: 3.0, 20: 5.0, 40: 8.0},
        8: {10: 7.0, 20: 10.0, 40: 16.0},
    }


def test_tables_are_read_in_seconds(tmp_path):
    def table(name, header, *rows):
        text = "\n".join([header, *rows]) + "\n"
        (tmp_path / f"h100_{name}.csv.gz").write_bytes(gzip.compress(text.encode()))

    attention = "batch_size,isl,step,num_heads,num_key_value_heads,latency"
    table("gemm", "m,n,k,latency", "8,256,512,2.0", "1,256,512,0.5")
    table("prompt_attention", attention, "1,16,0,8,2,0.25", "2,16,0,8,2,9.0")
    table("decode_attention", attention, "4,1,31,8,2,0.125")
    table("all_reduce", "num_gpus,kind,message_size,latency", "2,graph,128,0.005")
    read = operators.read_operators("H100", tmp_path)
    assert read.matrices == {(256, 512): {1: 0.0005, 8: 0.002}}
    assert list(read.matrices[256, 512]) == [1, 8]
    assert read.prompts == {(8, 2): {16: 0.00025}}
    assert read.decodes == {(8, 2): {4: {32: 0.000125}}}  # its own token among the context
    assert read.all_reduce(2, 128, graph=True) == pytest.approx(5e-6)


def test_random_steps_are_decodes_chunks_and_both_within_their_bounds():
    steps = list(random_steps(300, 1000, 5000, 0))
    assert steps == list(random_steps(300, 1000, 5000, 0))
    kinds = {(bool(step.chunks), bool(step.contexts)) for step in steps}
    assert kinds == {(False, True), (True, False), (True, True)}
    assert all(chunk + context <= 1000 for step in steps for chunk, context in step.chunks)
    assert all(1 <= context <= 1000 for step in steps for context in step.contexts)
    assert all(sum(step.contexts) <= 5000 * 1.5 for step in steps)
    assert any(context for step in steps for _, context in step.chunks)


def test_memory_of_a_model_is_that_of_the_catalogue():
    for name, architecture in ARCHITECTURES.items():
        shape = catalog.find_shape(name)
        assert shape.kv_bytes_per_token == architecture.kv_bytes_per_token
        assert shape.weight_bytes == architecture.weight_bytes


def test_the_catalogue_has_what_each_target_is_composed_of():
    known = {
        (each["model"], each["gpu"], each["tensor_parallel"]): each for each in models_file.read()["composed"]
    }
    assert len(known) == len(study.TARGETS)
    for target in study.TARGETS:
        assert known[target.model, target.gpu, target.gpus]["max_context"] == target.longest
    target = study.Target("yi-34b", "H100", 2, 4096)
    assert known["yi-34b", "H100", 2] == study.entry(target, study.compose(target))


@pytest.mark.parametrize("gpu", ["A100", "H100"])
def test_steps_in_the_catalogue_are_close_to_those_composed_one_by_one(gpu):
    target = study.Target("llama-3-8b", gpu, 1, 8192)
    assert study.error_percent(target, study.compose(target), 80) < 2


def test_axes_double_with_equal_parts_between():
    assert study.doubling(16, 64, 4) == [16, 20, 24, 28, 32, 40, 48, 56, 64]
    assert study.AXES.tokens == sorted(set(study.AXES.tokens))


def test_the_file_keeps_its_form(tmp_path):
    path = tmp_path / "models.json"
    models_file.write(models_file.read(), path)
    assert path.read_text() == models_file.PATH.read_text()
