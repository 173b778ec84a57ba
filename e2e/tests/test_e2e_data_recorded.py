"""The recorded traces are whole, in order, and what SOURCES.md says they are."""

import pytest

from e2e.data import recorded


@pytest.mark.parametrize(
    ("trace", "requests", "seconds", "prompt", "output"),
    [
        (recorded.azure_code, 8_819, 3436, 2048, 28),
        (recorded.azure_conversation, 19_366, 3502, 1155, 211),
        (recorded.mooncake, 12_031, 3537, 12_035, 343),
        (recorded.sharegpt, 10_000, 0, 246, 326),
        (recorded.arxiv, 28_257, 0, 2588, 291),
    ],
)
def test_a_trace_is_whole_and_in_order(trace, requests, seconds, prompt, output):
    arrivals = trace()
    assert len(arrivals) == requests
    times = [arrival.at for arrival in arrivals]
    assert times == sorted(times)
    assert (times[0], round(times[-1])) == (0, seconds)
    assert round(sum(arrival.prompt_tokens for arrival in arrivals) / requests) == prompt
    assert round(sum(arrival.output_tokens for arrival in arrivals) / requests) == output


def test_an_endless_cache_would_hit_a_third_of_mooncakes_blocks():
    known, hits, blocks = set(), 0, 0
    for arrival in recorded.mooncake():
        assert arrival.prefix_block == 512
        blocks += len(arrival.prefix)
        hits += sum(each in known for each in arrival.prefix)
        known.update(arrival.prefix)
    assert hits / blocks == pytest.approx(0.366, abs=0.001)
