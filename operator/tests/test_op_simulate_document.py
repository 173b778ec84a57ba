"""The service file of `headrace simulate`: which document is taken, and what is said of a wrong one."""

import pytest
import yaml
from op_kube import gpupool
from op_world import body

from headrace_operator.simulate.document import load_pools, load_service, load_services
from headrace_operator.simulate.usage_error import UsageError


def plain(**spec):
    """As a user writes it: without what the API server adds."""
    raw = body(**spec)
    raw["metadata"] = {"name": "chat"}
    return raw


@pytest.fixture
def file(tmp_path):
    def write(*documents):
        path = tmp_path / "service.yaml"
        texts = [text if isinstance(text, str) else yaml.safe_dump(text) for text in documents]
        path.write_text("---\n".join(texts))
        return path

    return write


def refusal(path):
    with pytest.raises(UsageError) as caught:
        load_service(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_the_service_is_found_among_other_objects(file):
    service = load_service(file({"kind": "Namespace"}, plain(replicas=3), ""))
    assert str(service.key) == "default/chat"
    assert service.replicas == 3


def test_what_kubectl_get_prints_is_taken(file):
    assert load_service(file({"kind": "List", "items": [body()]})).key.namespace == "llm"


@pytest.mark.parametrize(
    "text",
    ["a: 2001-13-01", "a: !!int z", "a: !!timestamp z", "a: 0x_", "[" * 5000, "a: *b", "\tx", "? [a]\n: b"],
)
def test_what_yaml_cannot_hold_is_told_in_one_line(file, text):
    refusal(file(text))


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([""], "it is empty"),
        ([{"kind": "Service"}, "- 1\n"], "it holds Service, no object"),
        ([plain(), plain()], "2 LLMServices (chat, chat); keep one"),
        ([plain() | {"apiVersion": "headrace.dev/v1"}], "apiVersion: 'headrace.dev/v1' is not"),
        ([plain() | {"apiVersion": "other/v1"}], "LLMService of another API"),
        ([plain() | {"metadata": {}}], "metadata.name: missing"),
        ([plain() | {"spec": {}}], 'the LLMService "chat" is invalid: spec.model: Field required'),
        ([plain(slo={"tpot": "fast"})], "spec.slo.tpot: 'fast' must be a positive whole number"),
        (
            [plain(slo={"ttff": "1s"})],
            "spec.slo.ttff: unknown field; there are ttft, tpot, e2e, e2eScalePercent, perRequest",
        ),
        (
            [plain(scheduling={"policy": "LARRY", "larry": {"beta": 1}})],
            "spec.scheduling.larry.beta: unknown",
        ),
        ([plain(podTemplate={"volumes": [{"nam": "x"}]})], "spec.podTemplate.volumes[0].nam: unknown"),
        ([plain(scheduling={"policy": "SJF"})], "spec.scheduling"),
        (["a: [\n"], ":2:1: not YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(file, documents, words):
    assert words in refusal(file(*documents))


def test_a_file_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "none.yaml").endswith("No such file or directory")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in refusal(tmp_path / "binary.yaml")


def test_all_services_and_pools_of_a_file_are_found(file):
    path = file(plain(), gpupool("shared", pair=["chat", "code"]), plain() | {"metadata": {"name": "code"}})
    assert [service.key.name for service in load_services(path)] == ["chat", "code"]
    [pool] = load_pools(path)
    assert (pool.key.name, pool.groups[0].members) == ("shared", ("chat", "code"))


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (gpupool("shared"), 'the GPUPool "shared" is invalid: spec.groups'),
        (
            gpupool("shared", a=["chat"]) | {"metadata": {}},
            "metadata.name: missing; each GPUPool needs a name",
        ),
    ],
)
def test_a_wrong_pool_is_named(file, pool, words):
    with pytest.raises(UsageError) as caught:
        load_pools(file(plain(), pool))
    assert words in str(caught.value)
