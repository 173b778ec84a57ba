"""Placements as pickers tell them to each other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.pick.placement import MOST_BYTES, Placement, decode, encode
from headrace_gateway.pick.prefix_index import cut_chunks

COUNTS = st.integers(0, 1 << 30)


@given(
    st.builds(
        Work,
        requests=st.integers(64, 2048),
        copies=st.integers(1, 64),
        tokens=COUNTS,
        text_bytes=COUNTS,
        media=COUNTS,
    ),
    st.integers(0, 200_000),
    st.floats(0, 1),
)
def test_what_is_told_is_what_was_placed(work, text_bytes, share):
    cached = {"10.0.0.1": work.tokens * share, "10.0.0.2": 1.0}
    sent = Placement("10.0.0.1", replace(work, cached=cached), cut_chunks(b"x" * text_bytes))
    service, heard = decode(encode("llm/chat", sent))
    assert (service, heard.address, heard.chunks) == ("llm/chat", sent.address, sent.chunks)
    told = heard.work
    assert told.uncached_tokens("10.0.0.1") == pytest.approx(sent.work.uncached_tokens("10.0.0.1"))
    assert replace(told, cached={}) == work


def test_of_a_prompt_that_is_too_long_for_a_datagram_its_beginning_is_told():
    chunks = cut_chunks(b"long" * (10 << 20))
    datagram = encode("llm/chat", Placement("10.0.0.1", Work(), chunks))
    assert len(datagram) <= MOST_BYTES
    _, heard = decode(datagram)
    assert 7000 < len(heard.chunks) < len(chunks)
    assert heard.chunks == chunks[: len(heard.chunks)]


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"{}\n",
        b"1\n",
        b'[1,"llm/chat"]\n',
        b'[2,"llm/chat","10.0.0.1",1,1,1,0,0,0,0]\n',
        b'["llm/chat","10.0.0.1",1,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1,1,-1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1,1,1e13,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",true,1,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",0,0,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",2,0,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",2,3,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",2049,1,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1.5,1,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1,1,NaN,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1,1,1,0,0,0,"0"]\n',
        b'[1,"llm/chat",["10.0.0.1"],1,1,1,0,0,0,0]\n',
        b'[1,"llm/chat","10.0.0.1",1,1,1,0,0,0,0]\nhalf',
        b"\xff\n",
    ],
)
def test_what_no_picker_wrote_is_refused(datagram):
    with pytest.raises(ValueError, match=r"."):
        decode(datagram)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_placement_or_a_value_error(datagram):
    try:
        decode(datagram)
    except ValueError:
        return
