from statistics import fmean

import pytest

from headrace_engine.sim.workloads import synthetic


def test_alpaca_has_the_means_and_ends_of_the_table():
    made = synthetic.alpaca()
    assert fmean(each.prompt_tokens for each in made) == pytest.approx(19.31, rel=0.05)
    assert fmean(each.output_tokens for each in made) == pytest.approx(58.41, rel=0.05)
    assert min(each.prompt_tokens for each in made) == 9
    assert 13 == min(each.output_tokens for each in made) < max(each.output_tokens for each in made) <= 292


def test_bookcorpus_has_the_outputs_of_the_table_and_is_cut_to_the_context():
    made = synthetic.bookcorpus()
    assert fmean(each.output_tokens for each in made) == pytest.approx(681.2, rel=0.03)
    assert all(32 <= each.output_tokens <= 1041 for each in made)
    assert max(each.tokens for each in made) == synthetic.LONGEST
    assert all(each.prompt_tokens >= 1 for each in made)
