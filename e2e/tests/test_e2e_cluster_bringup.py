"""Up, down and what comes between: on a second cluster beside the shared one, without our images."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from e2e_footprint import footprint

from e2e.cluster import binaries, bringup, gpu_nodes, images, node_files, packages, remains
from e2e.cluster.cluster import Cluster
from e2e.cluster.places import REPOSITORY, cache

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]


@pytest.fixture(scope="module")
def stopped():
    """The cluster as an object, in whatever state the test before left it."""
    bringup.programs()
    cluster = Cluster("bringup", memory_gib=1)
    cluster.down()
    yield cluster
    cluster.down()


@pytest.fixture
def cluster(stopped):
    """A cluster that is up, whatever the test before did to it."""
    stopped.up()
    return stopped


def until(holds, what, seconds=180):
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return found


def descendants(pid):
    """Every process under this one, as (pid, start time): a pid alone may come again."""
    parents, starts = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], starts[int(entry.name)] = int(fields[1]), int(fields[19])
    found, new = {pid}, {pid}
    while new := {child for child, parent in parents.items() if parent in new} - found:
        found |= new
    return {(child, starts[child]) for child in found if child in starts}


def alive(processes):
    return {item for item in processes if item in descendants(item[0])}


def test_down_leaves_nothing(stopped):
    stopped.down()
    before = footprint(stopped)
    stopped.up()
    gpu_nodes.join(stopped, 1)
    stopped.expose("default", "kubernetes", 443)
    run_pod(stopped, "left-running")
    processes = descendants(min(remains.node_pids(stopped.state)))
    assert len(processes) > 10
    during = footprint(stopped)
    for kind in ("sysctls", "units", "files", "contents", "routes", "rules"):
        assert during[kind] == before[kind]
    assert during["cgroups"]
    assert during["state"]
    stopped.down()
    assert footprint(stopped) == before
    until(lambda: not alive(processes), "all processes reaped")
    assert not remains.pids_of([f"--kubeconfig={stopped.state / 'kubeconfig'}"])


def test_up_on_a_healthy_cluster_changes_nothing(cluster):
    first = remains.first_process(cluster.state)
    cluster.up()
    assert remains.first_process(cluster.state) == first


def test_up_after_all_processes_were_killed(cluster):
    cluster.kubectl("create", "configmap", "of-the-old-cluster")
    for pid, _ in descendants(min(remains.node_pids(cluster.state))):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until(lambda: not remains.node_pids(cluster.state), "all processes ended")
    assert not cluster.healthy()
    cluster.up()
    assert cluster.healthy()
    assert "of-the-old-cluster" not in cluster.kubectl("get", "configmaps")


@pytest.mark.parametrize("moment", ["files", "process", "kubeconfig"])
def test_up_after_an_up_that_was_killed(stopped, moment):
    stopped.down()
    script = "import sys; from e2e.cluster.cluster import Cluster; Cluster(sys.argv[1]).up()"
    upping = subprocess.Popen(
        [sys.executable, "-c", script, stopped.name], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    reached = {
        "files": (stopped.state / "kubelet.json").exists,
        "process": lambda: remains.first_process(stopped.state),
        "kubeconfig": stopped.kubeconfig.exists,
    }
    try:
        until(reached[moment], moment)
    finally:
        upping.kill()
        upping.wait()
    stopped.up()
    assert stopped.healthy()


def run_pod(cluster, name):
    archive = next((cache() / "images").glob(f"{binaries.path('pause').name}.tar"), None) or images.build()[0]
    images.load([archive], cluster.state)
    container = {"name": "pause", "image": node_files.PAUSE_IMAGE, "imagePullPolicy": "Never"}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
    )
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=180s")


def test_a_pod_runs_with_an_address(cluster):
    run_pod(cluster, "lone")
    assert cluster.kubectl("get", "pod", "lone", "-o", "jsonpath={.status.podIP}").startswith("10.244.")
    cluster.kubectl("delete", "pod", "lone")


def test_who_takes_more_than_the_pods_memory_ends(cluster):
    run_pod(cluster, "neighbour")
    (group,) = (
        root for root in remains.cgroup_roots(cluster.cgroup) if root.parent.name in {"memory", "cgroup"}
    )
    hog = 'open(__import__("sys").argv[1], "w").write("0"); bytearray(b"x") * (3 << 29)'
    ended = subprocess.run([sys.executable, "-c", hog, group / "kubepods/cgroup.procs"], check=False)
    assert ended.returncode == -signal.SIGKILL
    offered = cluster.kubectl(
        "get", "node", node_files.NODE_NAME, "-o", "jsonpath={.status.allocatable.memory}"
    )
    assert offered == "924Mi"  # but for what the kubelet keeps before it evicts
    assert cluster.kubectl("get", "pod", "neighbour", "-o", "jsonpath={.status.phase}") == "Running"
    cluster.kubectl("delete", "pod", "neighbour")


def test_nobody_else_reads_the_administrators_files(cluster):
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for file in (cluster.state / "pki" / "tokens.csv", cluster.kubeconfig):
        assert file.read_bytes()
        assert subprocess.run([*nobody, "cat", file], capture_output=True, check=False).returncode


def test_up_where_the_machines_resolver_is_a_link_into_run(stopped):
    stopped.down()
    script = """
        mount -n -t tmpfs tmpfs /mnt; mkdir /mnt/upper /mnt/work
        ln -s ../run/systemd/resolve/stub-resolv.conf /mnt/upper/resolv.conf
        mount -n -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
        exec "$@"
    """
    up = f"from e2e.cluster.cluster import Cluster; Cluster({stopped.name!r}).up()"
    apart = ["unshare", "--mount", "sh", "-ec", script, "sh"]
    subprocess.run([*apart, sys.executable, "-c", up], cwd=REPOSITORY, check=True)
    assert stopped.healthy()
    resolver = subprocess.run(
        [*stopped.enter(), "cat", "/etc/resolv.conf"], capture_output=True, text=True, check=True
    )
    assert node_files.NODE_ADDRESS in resolver.stdout
    stopped.down()


def test_programs_are_fetched_and_run_without_installing_anything(stopped, tmp_path, monkeypatch):
    before = footprint(stopped)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    packages.ensure()
    told = packages.run_apart("buildah --version", "touch /etc/left /run/left /var/lib/left")
    assert told.startswith("buildah version")
    monkeypatch.undo()
    assert footprint(stopped) == before


def test_names_of_services_resolve_inside(cluster):
    command = [*cluster.enter(), "getent", "hosts", "kubernetes.default.svc.cluster.local"]
    answer = until(lambda: subprocess.run(command, capture_output=True, text=True, check=False).stdout, "DNS")
    assert answer.split()[0] == "10.96.0.1"


def test_a_killed_component_comes_back_and_a_held_one_does_not(cluster):
    pid = (cluster.state / "pids" / "kubelet").read_text()
    cluster.kill("kubelet")
    until(lambda: (cluster.state / "pids" / "kubelet").read_text() not in {"", pid}, "another kubelet")
    with cluster.held("kube-apiserver"):
        pid = (cluster.state / "pids" / "kube-apiserver").read_text()
        until(lambda: (cluster.state / "pids" / "kube-apiserver").read_text() not in {"", pid}, "who waits")
        assert not cluster.healthy()
    until(cluster.healthy, "the API server again")


def test_exposed_service_keeps_its_address(cluster):
    url = cluster.expose("default", "kubernetes", 443)
    trust = ssl.create_default_context(cafile=str(cluster.state / "pki" / "ca.crt"))

    def connects():
        try:
            with (
                socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as plain,
                trust.wrap_socket(plain, server_hostname="kubernetes.default") as encrypted,
            ):
                return encrypted.version()
        except OSError:  # the forwarder is still starting, or DNS is
            return None

    assert until(connects, "TLS through the forwarder")
    assert cluster.expose("default", "kubernetes", 443) == url


def test_pods_that_want_gpus_go_to_the_fake_nodes(cluster):
    gpu_nodes.join(cluster, 2, dra=True)
    claim = {"name": "gpu", "exactly": {"deviceClassName": gpu_nodes.DRIVER, "count": 2}}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "two", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [claim]}}},
        },
        gpu_pod("plugin", {"limits": {gpu_nodes.RESOURCE: 8}}),
        gpu_pod("too-large", {"limits": {gpu_nodes.RESOURCE: 9}}),
        gpu_pod(
            "dra", {"claims": [{"name": "gpus"}]}, [{"name": "gpus", "resourceClaimTemplateName": "two"}]
        ),
    )
    for name in ("plugin", "dra"):
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=180s")
        assert cluster.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}").startswith("gpu-")
    assert not cluster.kubectl("get", "pod", "too-large", "-o", "jsonpath={.spec.nodeName}")
    gpu_nodes.join(cluster, 0)
    assert cluster.kubectl("get", "nodes", "-o", "name").split() == [f"node/{node_files.NODE_NAME}"]


def gpu_pod(name, resources, claims=()):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "engine", "image": "none", "resources": resources}],
            "resourceClaims": list(claims),
            "tolerations": [{"key": gpu_nodes.LABEL, "operator": "Exists"}],
        },
    }
