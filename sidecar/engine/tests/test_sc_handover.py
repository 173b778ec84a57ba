"""The handover: good documents reach the engine's copy, bad ones leave it alone and are said."""

import json

import pytest

from headrace_engine.contracts import PolicyDocument, StepBudget, dumps, encode
from headrace_engine.control.policy_file import PolicyFile, write_policy
from headrace_engine.policies import registry
from headrace_sidecar.handover import Handover

LARRY = PolicyDocument(policy="LARRY", parameters={"alpha": 25}).sealed()
FCFS = PolicyDocument(policy="FCFS").sealed()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "control").mkdir()
    return tmp_path


@pytest.fixture
def source(folder):
    return folder / "config" / "policy.json"


@pytest.fixture
def target(folder):
    return folder / "control" / "policy.json"


@pytest.fixture
def handover(source, target):
    return Handover(source, target, registry.validate_document)


def test_a_good_document_reaches_the_engine(handover, source, target):
    handover.hand_over_new(5.0)
    assert handover.given == ""
    write_policy(source, LARRY)
    handover.hand_over_new(5.0)
    assert PolicyFile(target).poll() == LARRY
    assert (handover.given, handover.given_at, handover.refusal) == (LARRY.hash, 5.0, None)
    assert handover.policy_name(LARRY.hash) == "LARRY"
    assert handover.policy_name("0" * 16) == ""


def test_the_engines_copy_is_not_touched_without_need(handover, source, target):
    write_policy(source, LARRY)
    handover.hand_over_new(5.0)
    before = target.stat()
    write_policy(source, LARRY)
    handover.hand_over_new(5.0)
    assert (target.stat().st_ino, target.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (PolicyDocument(policy="LARY").sealed(), "LARY"),
        (PolicyDocument(policy="LARRY", parameters={"alpha": -1}).sealed(), "alpha"),
        (PolicyDocument(policy="LARRY", parameters={"beta": 1}).sealed(), "beta"),
        (PolicyDocument(policy="FCFS", step_budget=StepBudget("Fixed")).sealed(), "tokens"),
        (PolicyDocument(policy="FCFS"), "hash"),
        (PolicyDocument(policy="FCFS", hash="XYZ"), "hash"),
    ],
)
def test_a_document_that_cannot_run_is_refused_by_name(handover, source, target, document, message):
    write_policy(source, FCFS)
    handover.hand_over_new(5.0)
    write_policy(source, document)
    handover.hand_over_new(5.0)
    assert PolicyFile(target).poll() == FCFS
    assert handover.given == FCFS.hash
    assert handover.refusal.hash == document.hash
    assert message in handover.refusal.error


def test_a_document_with_parameters_that_do_nothing_is_handed_over_as_it_is(handover, source, target):
    """As an operator of another release writes it: it waits for this very hash."""
    old = PolicyDocument("AccelGen", {"gamma": 500, "skipping": True, "selection": "NearestFit"}).sealed()
    write_policy(source, old)
    handover.hand_over_new(5.0)
    assert PolicyFile(target).poll() == old
    assert (handover.given, handover.refusal) == (old.hash, None)


@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ("", ""),
        ("{", ""),
        ("[1]", ""),
        ('{"hash": 5}', ""),
        ('{"hash": "0123456789abcdef"}', "0123456789abcdef"),
        (json.dumps(encode(LARRY) | {"schema": 99}), LARRY.hash),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_no_document_is_refused(handover, source, target, text, claimed):
    source.write_text(text)
    handover.hand_over_new(5.0)
    assert handover.refusal.hash == claimed
    assert handover.refusal.error
    assert not target.exists()


def test_a_good_document_ends_a_refusal(handover, source):
    write_policy(source, FCFS)
    handover.hand_over_new(5.0)
    source.write_text("{")
    handover.hand_over_new(5.0)
    assert handover.refusal is not None
    write_policy(source, FCFS)
    handover.hand_over_new(5.0)
    assert handover.refusal is None


def test_a_restarted_sidecar_knows_what_its_predecessor_gave(handover, source, target):
    write_policy(source, LARRY)
    handover.hand_over_new(5.0)
    source.write_text("{")
    again = Handover(source, target, registry.validate_document)
    again.hand_over_new(1.0)
    assert (again.given, again.policy_name(LARRY.hash)) == (LARRY.hash, "LARRY")
    assert again.refusal is not None
    assert PolicyFile(target).poll() == LARRY


def test_a_folder_that_cannot_be_written_is_said_until_it_can(handover, source, target, folder):
    (folder / "control").rmdir()
    write_policy(source, LARRY)
    for _ in range(2):
        handover.hand_over_new(5.0)
        assert "cannot write" in handover.refusal.error
    (folder / "control").mkdir()
    handover.hand_over_new(5.0)
    assert (handover.given, handover.refusal) == (LARRY.hash, None)


def test_the_kubelets_way_of_changing_a_file_is_noticed(handover, source, target):
    source.symlink_to("..data/policy.json")
    for n, document in enumerate((LARRY, FCFS, LARRY)):
        version = source.parent / f"..{n}"
        version.mkdir()
        (version / "policy.json").write_text(dumps(document))
        (source.parent / "..data_tmp").symlink_to(version.name)
        (source.parent / "..data_tmp").replace(source.parent / "..data")
        handover.hand_over_new(5.0)
        assert PolicyFile(target).poll() == document
