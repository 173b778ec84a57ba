"""The trace's loader keeps arrivals as recorded and scales lengths linearly, up to a cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.data import azure
from e2e.data.azure import Request, Scale


def test_trace_is_in_order_and_complete():
    trace = azure.load()
    assert len(trace) == len(azure.CONVERSATION.read_text().splitlines()) - 1
    assert trace[0].at == 0
    assert [r.at for r in trace] == sorted(r.at for r in trace)
    assert 595 < trace[-1].at < 600
    assert all(r.prompt_tokens > 0 and r.output_tokens > 0 for r in trace)


def test_sub_second_arrivals_survive(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = azure.load(path)
    assert first == Request(0, 374, 44)
    assert second.at == pytest.approx(4.314579, abs=1e-6)


def test_window_counts_from_its_start():
    requests = [Request(at, 10, 5) for at in (0.0, 1.0, 2.5, 3.0)]
    assert [r.at for r in azure.window(requests, start=1, seconds=2)] == [0.0, 1.5]


def test_thinned_parts_share_nothing_and_lose_nothing():
    requests = [Request(float(i), i + 1, 1) for i in range(10)]
    parts = [list(azure.thin(requests, every=3, offset=offset)) for offset in range(3)]
    assert sorted((r for part in parts for r in part), key=lambda r: r.at) == requests


@given(
    st.integers(1, 20_000),
    st.integers(1, 2_000),
    st.floats(0.5, 64),
    st.floats(0.5, 64),
)
def test_scaled_lengths_are_linear_below_the_cap(prompt, output, prompt_divisor, output_divisor):
    scaled = Scale(prompt_divisor, output_divisor, prompt_limit=1500, output_limit=200)(
        Request(1.5, prompt, output)
    )
    assert scaled.at == 1.5
    for length, original, divisor, limit in (
        (scaled.prompt_tokens, prompt, prompt_divisor, 1500),
        (scaled.output_tokens, output, output_divisor, 200),
    ):
        assert 1 <= length <= limit
        assert length == limit or original / divisor <= length < original / divisor + 1


def test_scale_refuses_zero():
    with pytest.raises(ValueError, match="above zero"):
        Scale(0, 1, 1, 1)
