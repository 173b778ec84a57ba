"""Generated lives of a service on a real API server, checked at their end.

`HEADRACE_SEEDS=2000 pytest operator/tests/test_op_apiserver_sequences.py` tries that many; a test's name
holds its seed, and `HEADRACE_FIRST_SEED` starts from there.
"""

import pytest
from op_kube import new_namespace
from op_sequences import live, seeds

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def namespace(crd):
    kube = new_namespace(crd, "sequences")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": claim,
    }
    assert kube.create("persistentvolumeclaims", body).status_code == 201
    yield kube
    kube.close()


@pytest.fixture(scope="module", params=seeds(), ids=lambda seed: f"seed{seed}")
def life(request, crd, namespace):
    return live(crd, namespace, request.param)


def test_every_sequence_ends_accepted_with_its_last_generation_observed(life):
    """Invariant 1: the operator converges after any sequence of changes."""
    assert life.accepted == (True, "True"), life.story


def test_the_end_is_what_the_last_spec_alone_would_make(life):
    """Invariant 2: the way to a spec leaves no trace in what the service owns."""
    assert life.end == life.fresh, life.story
    assert len(life.end) >= 6


def test_nothing_is_written_after_the_end(life):
    """Invariant 3: at the fixpoint a fresh operator writes nothing."""
    assert life.writes_at_fixpoint == [], life.story


def test_nothing_is_deleted_that_the_service_wants(life):
    """Invariant 6: whatever the operator believes, it deletes only what the live spec no longer wants."""
    assert life.wrong_deletions == [], life.story
