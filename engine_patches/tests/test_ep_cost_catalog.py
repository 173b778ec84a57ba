"""The catalogue: what it finds under which names, and what it says when it finds nothing."""

import re

import pytest

from headrace_engine.cost import catalog
from headrace_engine.cost.model import Batch, chunk_work


@pytest.mark.parametrize("model", ["llama-3-8b", "Llama-3-8B", "meta-llama/Llama-3-8B"])
@pytest.mark.parametrize("gpu", ["H100", "h100"])
def test_names_are_found_however_they_are_written(model, gpu):
    profile = catalog.find_cost_model(model, gpu).profile
    assert (profile.model, profile.gpu, profile.tensor_parallel) == ("llama-3-8b", "H100", 1)
    assert profile.engine == "vLLM 0.24"


def test_the_newest_engine_is_taken_unless_one_is_asked_for():
    assert catalog.find_cost_model("opt-13b", "A100").profile.engine == "vLLM 0.14"
    assert (
        catalog.find_cost_model("opt-13b", "A100", engine="distserve").profile.engine
        == "vLLM 2024 (DistServe)"
    )


def test_distserve_takes_135_ms_for_768_tokens_of_opt_13b():
    """The figure within 5 % of EconoServe's 0.141 s."""
    old = catalog.find_cost_model("opt-13b", "A100", engine="distserve")
    assert old.step_seconds(Batch(768, chunk_work(768, 0), prefills=1)) == pytest.approx(0.1347, abs=1e-4)


def test_what_is_not_there_is_answered_with_what_is():
    with pytest.raises(LookupError, match="no cost model for gpt-5 on 2 x H100") as failure:
        catalog.find_cost_model("gpt-5", "H100", 2)
    for profile in catalog.list_profiles():
        assert f"{profile.model} on {profile.tensor_parallel} x {profile.gpu}" in str(failure.value)
    with pytest.raises(catalog.UnknownProfileError, match=re.escape("with engine 'sglang'")):
        catalog.find_cost_model("llama-3-8b", "H100", engine="sglang")


def test_each_model_on_each_gpu_and_engine_stands_once():
    keys = [(each.model, each.gpu, each.tensor_parallel, each.engine) for each in catalog.list_profiles()]
    assert len(keys) == len(set(keys))
    for model, gpu, gpus in (("qwen3-14b", "A100", 1), ("llama-3-70b", "H200", 2), ("yi-34b", "H100", 2)):
        assert catalog.kv_tokens(model, gpu, gpus) > 30_000


@pytest.mark.parametrize("profile", catalog.list_profiles(), ids=lambda p: f"{p.model}-{p.gpu}-{p.engine}")
def test_every_model_takes_longer_for_more(profile):
    cost = catalog.find_cost_model(profile.model, profile.gpu, profile.tensor_parallel, profile.engine)
    assert cost.profile == profile
    decodes = [cost.step_seconds(Batch(decodes=n, decode_context=500 * n)) for n in (1, 8, 64)]
    prefills = [cost.step_seconds(Batch(n, chunk_work(n, 0), prefills=1)) for n in (64, 512, 2048)]
    assert decodes == sorted(decodes)
    assert prefills == sorted(prefills)
    assert 0.001 < decodes[0] < 0.06
    assert 0.01 < prefills[-1] < 0.8


def test_memory_beside_the_weights_holds_the_cache():
    need = catalog.find_shape("meta-llama/Llama-3-8B")
    assert need.weight_bytes / 2 == pytest.approx(8.03e9, rel=0.001)
    tokens = catalog.kv_tokens("llama-3-8b", "A100", utilization=0.9)
    assert tokens == (80 * 2**30 * 0.9 - need.weight_bytes) // 131072
    assert catalog.kv_tokens("llama-3-70b", "H100") == 0
    assert catalog.gpu_bytes("h200") == 141 * 2**30


@pytest.mark.parametrize(
    "ask", [lambda: catalog.find_shape("gpt-5"), lambda: catalog.kv_tokens("opt-13b", "TPU")]
)
def test_unknown_memory_is_a_lookup_error(ask):
    with pytest.raises(LookupError, match="there are"):
        ask()
