"""What engines refuse has nobody else refused."""

from e2e.bench.attacks import bookings


def test_nobody_is_refused_for_what_no_report_confirmed():
    refused = bookings.measure()
    assert len(refused) > 1
    assert set(refused.values()) == {0}
