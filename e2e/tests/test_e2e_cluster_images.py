"""Images are tagged by what went into them, and all that runs one is told its tag."""

import pytest

from e2e.cluster import images
from e2e.demo import services
from e2e.demo.target import SAMPLES, connect

RELEASE = {"operator", "sidecar", "gateway"}


def test_the_release_shares_its_tag_and_no_other_image_has_it():
    tags = images.tags()
    assert tags.keys() == RELEASE | {"envoy", "vllm-cpu"}
    assert len({tags[name] for name in RELEASE}) == 1
    assert len(set(tags.values())) == 3


@pytest.mark.parametrize("number", range(len(images.all_images())))
def test_every_source_decides_the_tag(number, monkeypatch):
    """Were one left out, a cluster that is up would go on with what was made from it before."""
    image = images.all_images()[number]
    assert image.dockerfile in image.sources
    assert all(source.exists() for source in image.sources)
    seen = {}
    monkeypatch.setattr(images, "digest", lambda paths, *more: seen.update({tuple(paths): more}) or "base")
    assert image.tag == "base"
    assert "base" in seen[image.sources]


def test_an_image_of_other_content_has_another_tag(tmp_path):
    file = tmp_path / "Dockerfile"
    image = images.Image("any", file, (file,), lambda _: None)
    tags = []
    for content in ("FROM scratch", "FROM scratch", "FROM base"):
        file.write_text(content)
        tags.append(image.tag)
    assert tags[0] == tags[1] != tags[2]


def test_chart_and_samples_of_the_local_cluster_have_the_tags_of_now():
    tags, target = images.tags(), connect({"CLUSTER": "local"})
    assert target.values["image"] == {"registry": images.REGISTRY, "tag": tags["operator"]}
    assert target.values["gateway"]["image"] == {
        "repository": f"{images.REGISTRY}/envoy",
        "tag": tags["envoy"],
    }
    used = {m["spec"]["engine"]["image"] for m in services.load(SAMPLES, target.engine_image).values()}
    assert used == {f"{images.REGISTRY}/vllm-cpu:{tags['vllm-cpu']}"}
    assert len({m["spec"]["engine"]["image"] for m in services.load(SAMPLES).values()}) == 1
