"""Dashboards and alerts name metrics and labels that exist, and lead to sections that exist."""

import re

import pytest

from e2e.cluster.places import REPOSITORY
from e2e.monitoring import queries
from e2e.monitoring.scrape import Pod, of_pods

# Of every target, and of every process that prometheus_client describes.
TARGET = {"namespace", "service", "pod", "instance", "container", "job"}
PROCESS = {"process_resident_memory_bytes": set(), "process_cpu_seconds_total": set()}
DOCUMENTED = PROCESS | queries.documented()
MONITOR = {
    "metadata": {"name": "headrace-engines", "namespace": "headrace-system"},
    "spec": {
        "namespaceSelector": {"matchNames": ["llm"]},
        "selector": {"matchLabels": {"a/b": "c"}},
        "sampleLimit": 7,
        "podMetricsEndpoints": [
            {
                "port": "sidecar",
                "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_label_a_b"], "targetLabel": "x"}],
            }
        ],
    },
}


def asked():
    yield from queries.asked("llm", "chat", "shared")
    for rule in queries.alerts():
        yield queries.Query(rule["alert"], rule["expr"])


def anchors(page):
    """The addresses that the headings of a page get."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    shown = (re.sub(r"\]\([^)]*\)", "", heading) for heading in headings)  # without where links lead
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


def test_queries_name_documented_metrics_and_labels():
    wrong = {}
    for query in asked():
        names = {queries.family(metric, DOCUMENTED) for metric in query.metrics}
        known = TARGET.union(*(DOCUMENTED.get(name, set()) for name in names))
        if not names or names - DOCUMENTED.keys() or query.labels - known:
            wrong[query.where] = (names - DOCUMENTED.keys(), query.labels - known)
    assert wrong == {}


def test_every_metric_of_headrace_is_on_a_dashboard():
    shown = {queries.family(metric, DOCUMENTED) for query in asked() for metric in query.metrics}
    assert {name for name in DOCUMENTED if name.startswith("headrace_")} - shown == set()


def test_panels_that_may_be_silent_are_on_a_dashboard():
    assert queries.SILENT - {query.where for query in asked()} == set()


def test_dashboards_are_whole():
    boards = queries.dashboards()
    assert boards.keys() == {"service", "policy", "gateway", "operator", "pool"}
    assert len({board["uid"] for board in boards.values()}) == len(boards)
    for name, board in boards.items():
        panels = board["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels), name
        titles = [panel["title"] for panel in panels if panel["type"] != "row"]
        assert len(set(titles)) == len(titles), name
        spots = [
            (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
            for panel in panels
            for dx in range(panel["gridPos"]["w"])
            for dy in range(panel["gridPos"]["h"])
        ]
        assert len(set(spots)) == len(spots), f"{name}: panels overlap"
        assert max(x for x, _ in spots) < 24, name
        for panel in panels:
            if panel["type"] != "row":
                assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
                assert panel["targets"], panel["title"]


def test_alerts_lead_to_their_sections():
    rules = queries.alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary", "runbook"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors((REPOSITORY / page).read_text()), rule["alert"]
        assert anchor == rule["alert"].lower()


def test_every_advice_on_an_alert_is_of_one_that_exists():
    page = (REPOSITORY / "docs/troubleshooting.md").read_text()
    assert set(re.findall(r"^### (Headrace\w+)", page, re.MULTILINE)) == {
        rule["alert"] for rule in queries.alerts()
    }


def test_links_to_sections_lead_somewhere():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("**/*.md")]
    wrong = []
    for page in pages:
        for path, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            target = (page.parent / path) if path else page
            if target.suffix == ".md" and anchor not in anchors(target.read_text()):
                wrong.append((page.name, path, anchor))
    assert wrong == []


def test_a_variable_without_a_value_is_an_error():
    with pytest.raises(ValueError, match="without a value"):
        queries.filled("up{pod='$pod'}", {"namespace": "llm"})


def test_a_pod_monitor_becomes_a_scrape_configuration():
    config = of_pods(MONITOR, [Pod("127.0.0.1:9", "llm", "chat-0", "sidecar", {"a/b": "c"})], "5s")
    assert not config["honor_labels"]
    assert config["sample_limit"] == 7
    assert config["metrics_path"] == "/metrics"
    assert config["static_configs"][0]["labels"]["__meta_kubernetes_pod_label_a_b"] == "c"
    rules = {rule["target_label"]: rule["source_labels"] for rule in config["relabel_configs"]}
    assert rules["x"] == ["__meta_kubernetes_pod_label_a_b"]
    assert rules["pod"] == ["__meta_kubernetes_pod_name"]
