"""Which engine holds the beginning of a prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.pick.prefix_index import PrefixIndex, cut_chunks

LARGE = 1e9


def index(*addresses, capacity=LARGE):
    made = PrefixIndex()
    made.keep_engines(addresses)
    for address in addresses:
        made.resize(address, "boot", capacity)
    return made


def common_length(one, other):
    longest = min(len(one), len(other))
    return next((place for place in range(longest) if one[place] != other[place]), longest)


def size(chunks):
    return sum(length for _, length in chunks)


@given(st.binary(max_size=9000), st.binary(max_size=9000), st.binary(max_size=9000))
def test_texts_share_the_chunks_of_their_common_beginning(common, one, other):
    first, second = cut_chunks(common + one), cut_chunks(common + other)
    shared = common_length(common + one, common + other)
    agree = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        agree += mine[1]
    assert agree <= shared
    assert agree == size(cut_chunks((common + one)[:shared]))


def test_chunks_cover_all_but_the_end():
    assert cut_chunks(b"") == cut_chunks(b"x" * 255) == []
    for length in (256, 4096, 5119, 5120, 32_768, 40_000, 500_000):
        assert length - 4096 < size(cut_chunks(b"x" * length)) <= length


texts = st.lists(st.sampled_from([b"a" * 256, b"b" * 256, b"c" * 256]), max_size=5).map(b"".join)


@given(st.lists(st.tuples(st.sampled_from("xyz"), texts), max_size=12), texts)
def test_the_longest_beginning_that_each_engine_was_sent(sent, asked):
    made = index("x", "y", "z")
    for address, text in sent:
        made.record(address, cut_chunks(text))
    expected = {}
    for address, text in sent:
        longest = common_length(text, asked)
        expected[address] = max(expected.get(address, 0), longest)
    assert made.cached(cut_chunks(asked)) == {
        address: length for address, length in expected.items() if length
    }


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 30), st.integers(1, 8)), max_size=40))
def test_never_more_than_the_engines_hold(sent):
    made = index("x", "y", capacity=2048.0)
    for address, name, blocks in sent:
        made.record(address, cut_chunks(bytes([name]) * 256 * blocks))
        assert len(made) <= 16
    made.keep_engines([])
    assert len(made) == 0


def test_the_longest_unused_goes_first_and_a_prompts_end_before_its_beginning():
    made = index("x", capacity=1024.0)
    old, new = cut_chunks(b"o" * 768), cut_chunks(b"n" * 512)
    made.record("x", old)
    made.record("x", new)
    assert made.cached(old) == {"x": 512}
    made.record("x", old[:1])
    made.record("x", cut_chunks(b"m" * 512))
    assert made.cached(old) == {"x": 256}
    assert made.cached(new) == {"x": 256}


def test_an_engine_that_restarts_or_goes_holds_nothing():
    made, chunks = index("x", "y"), cut_chunks(b"t" * 1000)
    made.record("x", chunks)
    made.record("y", chunks)
    made.resize("x", "next boot", LARGE)
    assert made.cached(chunks) == {"y": 768}
    made.keep_engines(["x", "z"])
    assert made.cached(chunks) == {}
    made.record("y", chunks)
    assert len(made) == 0


def test_an_engine_of_unknown_size_is_not_remembered():
    made = PrefixIndex()
    made.keep_engines(["x"])
    made.record("x", cut_chunks(b"t" * 1000))
    assert len(made) == 0


def test_memory_is_bounded_however_large_the_engines():
    made = index("x", "y")
    made.most = 64
    for number in range(200):
        made.record("x", cut_chunks(bytes([number]) * 1024))
        made.record("y", cut_chunks(bytes([number]) * 1024))
    assert len(made) == 64


@pytest.mark.parametrize("others", [0, 100])
def test_places_of_engines_that_left_are_used_again(others):
    made = index("x", *map(str, range(others)))
    for number in range(300):
        made.keep_engines(["x", f"new-{number}"])
    made.resize("new-299", "boot", LARGE)
    chunks = cut_chunks(b"t" * 256)
    made.record("new-299", chunks)
    made.record("x", chunks)
    assert made.cached(chunks) == {"new-299": 256, "x": 256}
