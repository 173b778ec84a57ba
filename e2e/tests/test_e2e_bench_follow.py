"""The benchmark of the picker with 256 engines: its reports and its churn."""

import json

from e2e.bench import follow
from headrace_gateway.reports.load_client import parse_report


def test_each_report_tells_something_new():
    first, second = parse_report(follow.report(0, 3)), parse_report(follow.report(256, 3))
    assert first.boot == second.boot
    assert first.running != second.running
    assert second.arrivals == first.arrivals + 256


def test_churn_replaces_engines_and_services_but_keeps_their_number(tmp_path):
    fleet = follow.Fleet(tmp_path / "catalog.json", 1, 2)
    fleet.write()

    def catalog():
        return {each["config"]["name"]: each["addresses"] for each in json.loads(fleet.file.read_text())}

    before = catalog()
    for _ in range(20):
        fleet.change()
    after = catalog()
    for found in (before, after):
        engines = [address for addresses in found.values() for address in addresses]
        assert len(engines) == len(set(engines)) == follow.ENGINES
        assert len(found) == follow.SERVICES
    assert "model-0" in after
    assert len(before.keys() & after.keys()) < follow.SERVICES
    assert fleet.replaced == 20 * follow.REPLACED
