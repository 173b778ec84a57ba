"""SCLS as published: estimates, batches, workers, and the study that sets its claims beside ours."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.scls import batching, cases, claims, estimates, figures, offload, page, static_engines
from e2e.bench.scls.cases import RATES, ContinuousCase, StaticCase
from e2e.bench.scls.estimates import ServingTime
from e2e.bench.scls.static_batching import SCHEMES, SLICE, serve
from headrace_engine.sim.workloads.arrival import Arrival

SERVING = ServingTime(prefill=(1e-4, 2e-4, 3e-5, 0.02), decode=(4e-7, 4e-5, 6e-7, 0.02))


def arrivals(*lengths, gap=0.0):
    return [Arrival(number * gap, *each) for number, each in enumerate(lengths)]


@given(st.integers(1, 40), st.integers(1, 1024), st.integers(1, 300))
def test_the_estimate_is_prefill_and_the_sum_of_decodes(requests, length, iterations):
    p1, p2, p3, p4 = SERVING.prefill
    d1, d2, d3, d4 = SERVING.decode
    prefill = p1 * requests * length + p2 * requests + p3 * length + p4
    decodes = sum(
        d1 * requests * (length + each) + d2 * requests + d3 * (length + each) + d4
        for each in range(1, iterations + 1)
    )
    assert SERVING.seconds(requests, length, iterations) == pytest.approx(prefill + decodes)


def test_a_fit_finds_the_factors_that_the_times_were_made_with():
    def times(factors):
        first, second, third, fourth = factors
        return lambda n, length: first * n * length + second * n + third * length + fourth

    fitted = estimates.fit(times(SERVING.prefill), times(SERVING.decode), (1, 4, 16), (16, 128, 1024))
    assert fitted.prefill == pytest.approx(SERVING.prefill)
    assert fitted.decode == pytest.approx(SERVING.decode)


def test_deepspeed_takes_what_the_papers_rule_allows_and_hugging_face_what_fits():
    assert [estimates.deepspeed_rule(tokens) for tokens in (512, 513, 1024, 1025)] == [28, 22, 22, 12]
    most = estimates.fits_in(1000, 0.9)
    assert most(100) == 9
    assert most(901) == 0


def test_the_papers_example_comes_out_on_hugging_face():
    hf = static_engines.hugging_face()
    assert hf.seconds(16, 1024, 128) == pytest.approx(13.5, rel=1e-3)
    assert hf.seconds(15, 10, 128) + hf.seconds(1, 1024, 128) == pytest.approx(7.6, rel=1e-3)


@given(
    st.lists(st.integers(1, 1024), min_size=1, max_size=9),
    st.integers(1, 256),
    st.integers(500, 6000),
)
def test_no_other_split_takes_less_time(lengths, iterations, kv_tokens):
    lengths.sort()
    most = estimates.fits_in(kv_tokens, 1.0)

    def seconds(parts):
        return sum(SERVING.seconds(len(part), lengths[part[-1]], iterations) for part in parts)

    def allowed(part):
        return len(part) == 1 or len(part) <= most(lengths[part[-1]] + iterations)

    def splits(begin):
        if begin == len(lengths):
            yield []
        for end in range(begin + 1, len(lengths) + 1):
            if allowed(part := range(begin, end)):
                yield from ([part, *rest] for rest in splits(end))

    chosen = batching.split(lengths, SERVING, iterations, most)
    assert [place for part in chosen for place in part] == list(range(len(lengths)))
    assert all(map(allowed, chosen))
    assert seconds(chosen) == pytest.approx(min(map(seconds, splits(0))))


def test_a_long_prompt_does_not_pad_short_ones():
    lengths = [10] * 15 + [1024]
    parts = batching.split(
        lengths, static_engines.hugging_face().estimated(), 128, estimates.fits_in(50_000, 0.9)
    )
    assert parts == [range(15), range(15, 16)]


def test_the_batch_that_takes_longest_goes_first_to_the_worker_with_least():
    assert offload.max_min([1.0, 5.0, 2.0, 0.5], [3.0, 0.0, 1.0]) == [(1, 1), (2, 2), (0, 0), (3, 2)]


def test_the_interval_is_half_of_the_least_load_and_never_less_than_gamma():
    assert offload.interval([20.0, 30.0], 3.0) == 10.0
    assert offload.interval([2.0, 30.0], 3.0) == 3.0


@given(
    st.lists(st.tuples(st.integers(1, 1024), st.integers(1, 1024)), min_size=1, max_size=30),
    st.sampled_from(sorted(SCHEMES)),
    st.integers(1, 3),
)
def test_every_request_gets_all_of_its_tokens(lengths, scheme, workers):
    served = serve(arrivals(*lengths, gap=0.5), static_engines.deepspeed(), SCHEMES[scheme], workers)
    for request in served.requests:
        assert request.generated == request.arrival.output_tokens
        assert request.finished_at > request.arrival.at
        assert request.slices == -(-request.generated // SCHEMES[scheme].slice)
    assert sum(served.sizes) == sum(request.slices for request in served.requests)
    if scheme != "SLS":
        assert all(request.invalid < SLICE for request in served.requests)


def test_a_batch_pads_to_its_longest_and_goes_on_until_all_have_ended():
    engine = replace(static_engines.deepspeed(), fixed=2)
    served = serve(arrivals((5, 50), (100, 30), (40, 10)), engine, SCHEMES["SLS"], workers=1)
    assert served.sizes == [1, 2]  # the first finds the worker idle
    assert [(each.padded, each.invalid) for each in served.requests] == [(0, 0), (0, 0), (60, 20)]
    first = engine.seconds(1, 5, 50)
    assert [each.finished_at for each in served.requests] == pytest.approx(
        [first, *2 * [first + engine.seconds(2, 100, 30)]]
    )


def test_an_unfinished_request_goes_on_with_what_it_generated():
    engine = static_engines.deepspeed()
    served = serve(arrivals((5, SLICE + 1)), engine, SCHEMES["SO"], workers=1)
    assert served.requests[0].slices == 2
    assert served.requests[0].finished_at == pytest.approx(
        engine.seconds(1, 5, SLICE) + engine.seconds(1, 5 + SLICE, 1)
    )


def test_lengths_are_cut_as_the_paper_cuts_its_own():
    lengths = cases.lengths()
    assert max(each.prompt_tokens for each in lengths) == max(each.output_tokens for each in lengths) == 1024


FIGURES = (
    *("throughput", "response_mean", "response_p95", "response_longest", "completion_deviation"),
    *(
        "batch_size",
        "returned_early",
        "estimate_rms_error",
        "padded_tokens",
        "invalid_tokens",
        "three_slices",
    ),
)


@pytest.fixture(scope="module")
def found():
    """Figures of all runs, made up but alike for the same run."""
    return {
        case: {
            **{name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES},
            **({"first_token_mean": 0.1} if isinstance(case, ContinuousCase) else {}),
        }
        for case in cases.everything()
    }


def test_the_figures_count_claims_and_those_that_come_out(found):
    made = figures.figures(found)
    told = [claim for section in claims.all_claims(found).values() for claim in section]
    assert made["paper_signs"] == len(told) == len({claim.key for claim in told})
    assert made["paper_signs_reproduced"] == sum(claim.holds for claim in told) < len(told)


def test_a_sign_holds_only_if_it_holds_at_every_rate(found):
    def with_throughput(of_last_rate):
        return found | {
            case: figures_ | {"throughput": of_last_rate if case.rate == RATES[-1] else 2.0}
            for case, figures_ in found.items()
            if isinstance(case, StaticCase) and case.scheme == "SCLS"
        }

    def holds(changed):
        return claims.overall(changed)[0].holds

    assert holds(with_throughput(2.0))
    assert not holds(with_throughput(0.01))


def test_the_page_sets_each_claim_beside_the_papers(found, tmp_path):
    many = {
        case: each | {"throughput": 2.0}
        if isinstance(case, ContinuousCase) and case.at_once == max(cases.AT_ONCE)
        else each
        for case, each in found.items()
    }
    text = page.write(many, tmp_path).read_text()
    for section in claims.all_claims(many).values():
        for claim in section:
            assert f"| {claim.words} " in text
    assert f"as soon as an engine may run {figures.enough_at_once(many)} at once" in text
    assert (tmp_path / "scls.svg").exists()
