"""From a service to the simulated engine: model, settings, KV cache, and what has no cost model."""

import pytest
from op_world import body

from headrace_engine.cost import catalog
from headrace_operator.api import engine_arguments, parse_service
from headrace_operator.simulate import arguments, models
from headrace_operator.simulate.simulated_engine import make_engine
from headrace_operator.simulate.usage_error import UsageError

LLAMA = {"source": "hf://meta-llama/Llama-3.1-8B-Instruct"}


def service(model=LLAMA, args=(), accelerator="GPU", **settings):
    return parse_service(
        body(
            model=model,
            engine={"image": "i", "args": list(args), **settings},
            accelerator={"type": accelerator},
        )
    )


def derived(gpu="H100", told=None, **spec):
    asked = service(**spec)
    served = models.find_served_model(asked, told)
    tensor_parallel = asked.spec.engine.tensor_parallel_size
    return make_engine(asked, served, models.find_cost_model(served.name, gpu, tensor_parallel).profile)


def refusal(**spec):
    with pytest.raises(UsageError) as caught:
        derived(**spec)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("source", "name", "longest"),
    [
        ("hf://meta-llama/Llama-3.1-8B-Instruct", "llama-3-8b", 131_072),
        ("hf://meta-llama/Meta-Llama-3-70B", "llama-3-70b", 8192),
        ("hf://meta-llama/Llama-2-13b-chat-hf", "llama-2-13b", 4096),
        ("hf://facebook/opt-13b", "opt-13b", 2048),
        ("pvc://weights/llama/Llama-3.3-70B-Instruct", "llama-3-70b", 131_072),
        ("hf://Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b", 32_768),
        ("hf://Qwen/Qwen2.5-7B", "qwen2.5-7b", 131_072),
        ("hf://Qwen/Qwen3-14B", "qwen3-14b", 40_960),
        ("hf://Qwen/Qwen3-14B-Base", "qwen3-14b", 32_768),
        ("hf://Qwen/Qwen3-32B", "qwen3-32b", 40_960),
        ("hf://codellama/CodeLlama-34b-Instruct-hf", "codellama-34b", 16_384),
        ("hf://codellama/CodeLlama-34b-hf", "codellama-34b", 16_384),
        ("hf://01-ai/Yi-34B", "yi-34b", 4096),
        ("hf://01-ai/Yi-34B-Chat", "yi-34b", 4096),
        ("hf://mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b", 128_000),
        ("hf://mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-12b", 128_000),
    ],
)
def test_models_that_are_recognised(source, name, longest):
    found = models.find_served_model(service(model={"source": source}), None)
    assert (found.name, found.longest, found.told) == (name, longest, False)
    assert name in {profile.model for profile in catalog.list_profiles()}


@pytest.mark.parametrize(
    "source",
    ["hf://Qwen/Qwen2.5-14B-Instruct", "hf://meta-llama/Llama-3.1-8B-Instruct-FP8", "pvc://models/tiny"],
)
def test_other_models_need_to_be_told(source):
    message = refusal(model={"source": source})
    assert message.startswith(f"spec.model.source: no cost model is known for {source}; name one")
    assert "llama-3-8b" in message


def test_what_has_no_cost_model_is_named_with_what_has():
    assert refusal(told="gpt-2").startswith("--model: no cost model for gpt-2; there are llama-2-7b")
    assert refusal(gpu="b200") == "--gpu: no cost model for llama-3-8b on b200; there are A100, H100, H200"
    many = refusal(tensorParallelSize=4)
    assert many == (
        "spec.engine.tensorParallelSize: no cost model for llama-3-8b on 4 x H100; there are for 1, 2"
    )


def test_defaults_are_those_of_vllm():
    large, small = derived(maxModelLen=8192).settings, derived(maxModelLen=8192, gpu="a100").settings
    assert (large.max_num_batched_tokens, large.max_num_seqs) == (8192, 1024)
    assert (small.max_num_batched_tokens, small.max_num_seqs) == (2048, 256)
    assert large.async_scheduling
    assert large.prefix_caching
    assert large.block_size == 16


def test_settings_of_the_service_are_taken():
    settings = derived(
        args=[
            "--max-num-batched-tokens=4k",
            "--max_num_seqs",
            "64",
            "--watermark=0.05",
            "--no-async-scheduling",
            "--enable-prefix-caching",
            "--no-enable-prefix-caching",
            "--num-gpu-blocks-override=1000",
        ],
        blockSize=32,
        maxModelLen=2000,
    ).settings
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (4000, 64)
    assert (settings.num_blocks, settings.block_size, settings.max_model_len) == (1000, 32, 2000)
    assert settings.watermark == 0.05
    assert not settings.async_scheduling
    assert not settings.prefix_caching


def test_the_kv_cache_gets_what_the_memory_has_left():
    shape = catalog.find_shape("llama-3-8b")
    found = derived(maxModelLen=8192, gpuMemoryUtilizationPercent=80)
    tokens = catalog.kv_tokens("llama-3-8b", "H100", 1, 0.8) - 3 * 2**30 // shape.kv_bytes_per_token
    assert abs(found.settings.num_blocks - tokens // 16) <= 1
    assert found.kv_source == "80% of 1 x H100 less the weights and 3 GiB per GPU"
    given = derived(maxModelLen=8192, args=["--kv-cache-memory-bytes=10G"])
    assert given.settings.num_blocks == 10 * 2**30 // shape.kv_bytes_per_token // 16


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"args": ["--max-num-seqs=many"]}, "spec.engine.args: --max-num-seqs: 'many' is not a whole number"),
        ({"args": ["--max-num-batched-tokens"]}, "--max-num-batched-tokens: None is not a whole number"),
        ({"args": ["--max-num-seqs=0"]}, "'0' is not at least 1"),
        ({"args": ["--watermark=2"]}, "--watermark: '2' is not a number from 0 to below 1"),
        ({"args": ["--max-num-seqs=512", "--max-num-batched-tokens=256"]}, "vLLM refuses to start"),
        ({"gpuMemoryUtilizationPercent": 15}, "no memory is left for a KV cache"),
        ({"args": ["--num-gpu-blocks-override=80"]}, "spec.engine.maxModelLen: 131072 tokens are more than"),
        ({"args": ["--quantization", "fp8"]}, "--quantization fp8: no cost model fits"),
        ({"args": ["--kv-cache-dtype=fp8"]}, "with --model llama-3-8b it is simulated as if"),
    ],
)
def test_settings_that_cannot_be_simulated(spec, words):
    assert words in refusal(**spec)


def test_what_is_not_simulated_is_said():
    found = derived(
        told="llama-3-8b",
        model={"source": "pvc://models/tiny"},
        args=["--dtype=float32", "--enforce-eager", "--max-num-seqs=8", "--kv-cache-dtype=auto"],
        accelerator="CPU",
        maxModelLen=2048,
    )
    assert found.notes == (
        "spec.accelerator.type is CPU; simulated as if each replica had 1 x H100",
        "times are those of llama-3-8b, for pvc://models/tiny",
        "not simulated: --dtype float32",
        "not simulated: --enforce-eager --kv-cache-dtype",
    )


@pytest.mark.parametrize(
    ("text", "number"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("25.6k", 25_600), ("1m", 1_000_000)]
)
def test_numbers_as_vllm_reads_them(text, number):
    assert (
        arguments.parse_whole_number(
            engine_arguments.parse_arguments([f"--max-num-seqs={text}"]), "max-num-seqs"
        )
        == number
    )
