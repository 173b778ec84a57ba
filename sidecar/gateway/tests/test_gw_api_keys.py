"""API keys from a mounted Secret become the filter's configuration, and follow it."""

import json
import logging

import pytest

from headrace_gateway.xds.api_keys import pair_keys, read_entries, update_file
from headrace_gateway.xds.credentials import api_keys_document


def secret(folder, version, **entries):
    """A Secret as the kubelet mounts it: entries link into a folder that is replaced whole."""
    data = folder / f"..{version}"
    data.mkdir()
    for name, text in entries.items():
        (data / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    for link in folder.iterdir():
        if not link.name.startswith("..") and link.name not in entries:
            link.unlink()


def told(file):
    [resource] = json.loads(file.read_text())["resources"]
    return {each["key"]: each["client"] for each in resource["typed_config"]["credentials"]}


def test_a_changed_secret_is_written_whole_and_an_unchanged_one_not_again(tmp_path):
    mounted, file = tmp_path / "secret", tmp_path / "keys.json"
    mounted.mkdir()
    secret(mounted, 1, team_a="one\ntwo\n", team_b="three")
    written = update_file(mounted, file, "")
    assert told(file) == {"one": "team_a", "two": "team_a", "three": "team_b"}
    file.unlink()
    assert update_file(mounted, file, written) == written
    assert not file.exists()
    secret(mounted, 2, team_b="four")
    update_file(mounted, file, written)
    assert told(file) == {"four": "team_b"}
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["keys.json"]


def test_a_secret_that_is_gone_leaves_the_keys(tmp_path):
    file = tmp_path / "keys.json"
    assert update_file(tmp_path / "none", file, "before") == "before"
    assert not file.exists()


def test_what_is_no_key_is_left_out_and_no_key_is_logged(caplog):
    entries = {"a": "good-1 \r\n\ngood-2", "b": "with space", "c": "umläut", "d": "good-1", "e": "\n"}
    with caplog.at_level(logging.INFO):
        assert pair_keys(entries) == [("good-1", "a"), ("good-2", "a")]
    assert [record.getMessage()[:8] for record in caplog.records] == [f"client {name}" for name in "bcde"]
    assert not any(key in caplog.text for key in ("good", "with space", "umläut"))


def test_an_empty_secret_lets_nobody_in(tmp_path):
    assert read_entries(tmp_path) == {}
    assert api_keys_document([])["resources"][0]["typed_config"]["credentials"] == []


@pytest.mark.parametrize("text", ["a\0b", "\x7f", "tab\tkey"])
def test_control_characters_are_no_key(text):
    assert pair_keys({"client": text}) == []
