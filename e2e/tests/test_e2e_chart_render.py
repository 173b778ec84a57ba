"""What the chart renders is valid for each Kubernetes it supports, locked down, and named as agreed."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from e2e import helm
from e2e.helm import of

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]  # in the tier whose preparation builds Helm

VALUES = {
    "defaults": {},
    "one of each": {
        "gateway": {"replicas": 1},
        "picker": {"replicas": 1},
        "operator": {"replicas": 1},
        "networkPolicies": {"enabled": False},
    },
    "two namespaces": {"watchNamespaces": ["llm", "chat"]},
    "no definitions": {"crds": {"enabled": False}},
    "exposed": {
        "gateway": {
            "replicas": 3,
            "url": "https://llm.example.com",
            "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a.example/b": "true"}},
        }
    },
    "monitored": {
        "watchNamespaces": ["llm"],
        "monitoring": {
            "podMonitors": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True},
        },
    },
    "secured": {
        "gateway": {
            "tls": {"secretName": "certificate"},
            "apiKeys": {"secretName": "clients"},
            "service": {"port": 443},
            "resources": {"limits": {"memory": "1.5Gi"}},
        },
        "picker": {"replicas": 1},
    },
    "placed": {
        "image": {"registry": "example.com/llm", "tag": "v1", "pullSecrets": [{"name": "pull"}]},
        "priorityClassName": "system-cluster-critical",
        "operator": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "resources": {"limits": {"cpu": 1}},
            "allowHostPath": True,
        },
    },
}
# The oldest supported, the one that the local cluster runs, the newest known.
VERSIONS = ("1.30", "1.34", kubernetes_validate.latest_version())
WORKLOADS = ("operator", "picker", "gateway")
# Definitions that are not Kubernetes' own: the API server or Prometheus checks those.
CUSTOM = {"CustomResourceDefinition", "PodMonitor", "PrometheusRule"}


@pytest.fixture(scope="module")
def defaults():
    return helm.render()


def pods(manifests):
    """Name and pod spec of everything that runs."""
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "Pod":
            yield manifest["metadata"]["name"], manifest["spec"]


def test_lint_finds_nothing():
    helm.helm("lint", "--strict", str(helm.CHART))


@pytest.mark.parametrize("case", VALUES)
def test_every_object_is_valid(case):
    manifests = helm.render(VALUES[case])
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", VALUES)
def test_every_pod_is_restricted(case):
    for name, spec in pods(helm.render(VALUES[case])):
        security = spec["securityContext"]
        assert security["runAsNonRoot"], name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec.get("hostNetwork", spec.get("hostPID", False)) is False, name
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_only_those_who_call_the_api_hold_a_token(defaults):
    holders = {name for name, spec in pods(defaults) if spec["automountServiceAccountToken"]}
    assert holders == {"headrace-operator", "headrace-picker"}
    assert not any(account["automountServiceAccountToken"] for account in of(defaults, "ServiceAccount"))


def test_selectors_reach_their_own_pods_only(defaults):
    labels = {
        w: of(defaults, "Deployment", f"headrace-{w}")["spec"]["template"]["metadata"]["labels"]
        for w in WORKLOADS
    }

    def reached(selector):
        return {w for w in WORKLOADS if selector.items() <= labels[w].items()}

    for workload in WORKLOADS:
        deployment = of(defaults, "Deployment", f"headrace-{workload}")
        assert reached(deployment["spec"]["selector"]["matchLabels"]) == {workload}
        policy = of(defaults, "NetworkPolicy", f"headrace-{workload}")
        assert reached(policy["spec"]["podSelector"]["matchLabels"]) == {workload}
    for workload in ("picker", "gateway"):
        assert reached(of(defaults, "Service", f"headrace-{workload}")["spec"]["selector"]) == {workload}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_runs_twice_is_spread_over_nodes_and_evicted_one_at_a_time(defaults, workload):
    deployment = of(defaults, "Deployment", f"headrace-{workload}")["spec"]
    own = deployment["selector"]["matchLabels"]
    assert deployment["replicas"] > 1
    [spread] = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"]["matchLabels"] == own
    budget = of(defaults, "PodDisruptionBudget", f"headrace-{workload}")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"] == own


def test_every_workload_is_among_those_that_are_checked(defaults):
    assert {m["metadata"]["name"] for m in of(defaults, "Deployment")} == {f"headrace-{w}" for w in WORKLOADS}


def test_what_runs_once_has_no_budget_that_would_block_a_node_drain():
    assert not of(helm.render(VALUES["one of each"]), "PodDisruptionBudget")


def test_the_operator_is_told_what_it_must_know():
    manifests = helm.render(
        VALUES["two namespaces"] | {"image": {"registry": "example.com/llm", "tag": "v1"}}
    )
    [container] = of(manifests, "Deployment", "headrace-operator")["spec"]["template"]["spec"]["containers"]
    assert {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]} == {
        "HEADRACE_SYSTEM_NAMESPACE": "headrace-system",
        "HEADRACE_LEASE": "headrace-operator",
        "HEADRACE_POD": {"fieldRef": {"fieldPath": "metadata.name"}},
        "HEADRACE_WATCH_NAMESPACES": "llm,chat",
        "HEADRACE_ROUTED_GATE": "true",
        "HEADRACE_SIDECAR_IMAGE": "example.com/llm/sidecar:v1",
        "HEADRACE_SIDECAR_IMAGE_PULL_POLICY": "IfNotPresent",
        "HEADRACE_GATEWAY_URL": "http://headrace-gateway.headrace-system.svc",
        "HEADRACE_GATEWAY_KEY": "headrace-gateway-key",
        "HEADRACE_GATEWAY_API_KEYS": "false",
        "HEADRACE_ALLOW_HOST_PATH": "false",
        "HEADRACE_ALLOW_SERVICE_ACCOUNT_NAME": "false",
        "HEADRACE_METRICS_PORT": "9090",
    }


def test_the_address_shown_to_users_follows_the_service():
    def url(values):
        [container] = of(helm.render(values), "Deployment", "headrace-operator")["spec"]["template"]["spec"][
            "containers"
        ]
        return next(e["value"] for e in container["env"] if e["name"] == "HEADRACE_GATEWAY_URL")

    assert url({"gateway": {"service": {"port": 8000}}}) == "http://headrace-gateway.headrace-system.svc:8000"
    assert url(VALUES["exposed"]) == "https://llm.example.com"
    assert url(VALUES["secured"]) == "https://headrace-gateway.headrace-system.svc"


def test_envoy_finds_the_picker_and_drains_before_it_stops(defaults):
    bootstrap = yaml.safe_load(of(defaults, "ConfigMap", "headrace-envoy")["data"]["envoy.yaml"])
    picker = of(defaults, "Service", "headrace-picker")
    assert f"{picker['metadata']['name']}.headrace-system.svc" in str(bootstrap)
    assert picker["spec"]["clusterIP"] == "None"  # each picker has an address of its own
    spec = of(defaults, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]
    _, _, hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    drain = sum(map(int, re.findall(r"^sleep (\d+)$", hook, re.MULTILINE)))
    assert drain == 60 < spec["terminationGracePeriodSeconds"]
    admin = bootstrap["admin"]["address"]["socket_address"]
    assert f"/dev/tcp/{admin['address']}/{admin['port_value']}" in hook


def test_what_says_that_a_pod_ends_is_a_file_that_envoy_watches_and_the_hook_replaces(defaults):
    bootstrap = yaml.safe_load(of(defaults, "ConfigMap", "headrace-envoy")["data"]["envoy.yaml"])
    [envoy] = of(defaults, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]["containers"]
    [file] = [
        monitor["typed_config"]["filename"]
        for monitor in bootstrap["overload_manager"]["resource_monitors"]
        if "filename" in monitor["typed_config"]
    ]
    assert f"echo 0 >{file} &&" in envoy["command"][-2]
    assert f"mv {file}.new {file}\n" in envoy["lifecycle"]["preStop"]["exec"]["command"][-1]
    [mount] = [mount for mount in envoy["volumeMounts"] if file.startswith(mount["mountPath"] + "/")]
    assert not mount.get("readOnly")


@pytest.mark.parametrize("seconds", [1, 2, 7, 3600])
def test_both_halves_of_the_drain_make_a_whole(seconds):
    manifests = helm.render({"gateway": {"drainSeconds": seconds}})
    [envoy] = of(manifests, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]["containers"]
    halves = re.findall(r"^sleep (\d+)$", envoy["lifecycle"]["preStop"]["exec"]["command"][-1], re.MULTILINE)
    assert sum(map(int, halves)) == seconds


def test_the_hook_that_drains_says_so_to_envoy_and_outlives_its_absence(defaults, tmp_path):
    spec = of(defaults, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]
    shell, flag, hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    with socket.create_server(("127.0.0.1", 0)) as admin:
        port = admin.getsockname()[1]
        hook = hook.replace("/9901", f"/{port}").replace("sleep 30", "echo slept")
        hook = hook.replace("/run/envoy", str(tmp_path))
        with subprocess.Popen([shell, flag, hook], stdout=subprocess.PIPE, text=True) as running:
            connection, _ = admin.accept()
            with connection, connection.makefile("rb") as told:
                assert told.readline() == b"POST /healthcheck/fail HTTP/1.1\r\n"
                assert [told.readline() for _ in range(3)][-1] == b"\r\n"
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            assert running.communicate(timeout=60)[0] == "slept\nslept\n"
    assert (tmp_path / "draining").read_text() == "1\n"
    done = subprocess.run([shell, flag, hook], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "slept\nslept\n"


def test_secrets_are_mounted_where_they_are_read():
    manifests = helm.render(VALUES["secured"])
    [operator] = of(manifests, "Deployment", "headrace-operator")["spec"]["template"]["spec"]["containers"]
    assert {"name": "HEADRACE_GATEWAY_API_KEYS", "value": "true"} in operator["env"]
    spec = of(manifests, "Deployment", "headrace-gateway")["spec"]["template"]["spec"]
    [envoy], (_relay, keys) = spec["containers"], spec["initContainers"]
    secrets = {each["name"]: each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each}
    assert secrets == {"tls": "certificate", "api-keys": "clients", "gateway-key": "headrace-gateway-key"}
    mounts = {each["name"]: each["mountPath"] for each in envoy["volumeMounts"]}
    assert not {"api-keys", "gateway-key"} & mounts.keys()
    files = of(manifests, "ConfigMap", "headrace-envoy")["data"]
    assert mounts["tls"] in files["certificate.yaml"]
    command, shared = keys["command"], {each["name"]: each["mountPath"] for each in keys["volumeMounts"]}
    assert command[-2] == shared["api-keys"]
    assert command[-1].startswith(mounts["run"])
    assert command[-1] in files["envoy.yaml"]
    monitors = yaml.safe_load(files["envoy.yaml"])["overload_manager"]["resource_monitors"]
    [heap] = [m["typed_config"] for m in monitors if m["name"].endswith("fixed_heap")]
    assert int(heap["max_heap_size_bytes"]) == 3 << 29


def test_a_limit_that_is_no_quantity_is_refused():
    with pytest.raises(helm.HelmError, match=r"gateway\.resources\.limits\.memory: lots"):
        helm.render({"gateway": {"resources": {"limits": {"memory": "lots"}}}})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"gateway": {"resources": {"limits": {"memory": "512Mi"}}}},
            "gateway.resources.limits.memory: set it to 976Mi",
        ),
        ({"gateway": {"concurrency": 8}}, "gateway.resources.limits.memory: set it to 3136Mi"),
        (
            {"gateway": {"relay": {"resources": {"limits": {"memory": "300Mi"}}}}},
            "gateway.relay.resources.limits.memory: set it to 356Mi",
        ),
        (
            {
                "gateway": {
                    "maxBodyBytes": 16 << 20,
                    "resources": {"limits": {"memory": "8Gi"}},
                    "relay": {"resources": {"limits": {"memory": "1Gi"}}},
                }
            },
            "picker.resources.limits.memory: set it to 656Mi",
        ),
    ],
)
def test_a_limit_that_bodies_can_use_up_is_refused(values, told):
    with pytest.raises(helm.HelmError, match=re.escape(told)):
        helm.render(values)


@pytest.mark.envoy
def test_envoy_accepts_the_bootstrap(defaults, tmp_path):
    bootstrap = tmp_path / "envoy.yaml"
    text = of(defaults, "ConfigMap", "headrace-envoy")["data"]["envoy.yaml"]
    bootstrap.write_text(text.replace("/run/envoy", str(tmp_path)))  # must be there to be watched
    envoy = Path(sys.executable).with_name("envoy")
    node = ["--service-cluster", "headrace", "--service-node", "gateway-0"]
    done = subprocess.run(
        [envoy, "--mode", "validate", "--config-path", bootstrap, *node],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_changed_bootstrap_rolls_the_gateway():
    def annotation(chart_values, *flags):
        template = of(helm.render(chart_values, *flags), "Deployment", "headrace-gateway")["spec"]["template"]
        return template["metadata"]["annotations"]["headrace.dev/bootstrap"]

    assert annotation({"gateway": {"replicas": 5}}) == annotation({})
    assert annotation({}, "--namespace", "elsewhere") != annotation({})


@pytest.mark.parametrize(("keep", "expected"), [(True, "keep"), (False, None)])
def test_definitions_are_kept_on_request(keep, expected):
    definitions = of(helm.render({"crds": {"keep": keep}}), "CustomResourceDefinition")
    assert definitions
    for definition in definitions:
        assert definition["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == expected


def test_definitions_can_be_left_out():
    assert not of(helm.render(VALUES["no definitions"]), "CustomResourceDefinition")


def test_old_kubernetes_is_refused():
    with pytest.raises(helm.HelmError, match=r"requires kubeVersion: >=1\.30"):
        helm.render({}, "--kube-version", "1.29.9")


def test_monitoring_is_off_unless_asked_for(defaults):
    assert {m["kind"] for m in defaults}.isdisjoint({"PodMonitor", "PrometheusRule"})
    assert not any("grafana_dashboard" in m["metadata"].get("labels", {}) for m in defaults)


def test_no_pod_is_believed_who_it_is():
    for monitor in of(helm.render(VALUES["monitored"]), "PodMonitor"):
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert not endpoint.get("honorLabels")
        sources = {tuple(rule.get("sourceLabels", ())) for rule in endpoint.get("relabelings", ())}
        assert sources <= {("__meta_kubernetes_pod_label_headrace_dev_service",)}


def test_pod_monitors_select_pods_and_name_ports_that_there_are(defaults):
    manifests = helm.render(VALUES["monitored"])
    monitors = {m["metadata"]["name"].removeprefix("headrace-"): m for m in of(manifests, "PodMonitor")}
    assert monitors.keys() == {*WORKLOADS, "relay", "engines"}
    for name, workload in [*zip(WORKLOADS, WORKLOADS, strict=True), ("relay", "gateway")]:
        template = of(defaults, "Deployment", f"headrace-{workload}")["spec"]["template"]
        spec = monitors[name]["spec"]
        assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        containers = [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]
        ports = [port["name"] for container in containers for port in container["ports"]]
        assert len(ports) == len(set(ports))
        [endpoint] = spec["podMetricsEndpoints"]
        assert endpoint["port"] in ports
        assert monitors[name]["metadata"]["labels"]["release"] == "prometheus"
    assert monitors["engines"]["spec"]["namespaceSelector"] == {"matchNames": ["llm"]}


def test_rules_and_dashboards_are_the_files_of_the_chart():
    manifests = helm.render(VALUES["monitored"])
    [rules] = of(manifests, "PrometheusRule")
    assert rules["spec"]["groups"] == yaml.safe_load((helm.CHART / "files/rules.yaml").read_text())["groups"]
    for path in (helm.CHART / "files/dashboards").glob("*.json"):
        config_map = of(manifests, "ConfigMap", f"headrace-dashboard-{path.stem}")
        assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(config_map["data"][f"headrace-{path.stem}.json"]) == json.loads(path.read_text())
