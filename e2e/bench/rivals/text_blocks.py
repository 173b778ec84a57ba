"""A prompt's text as a chain of hashed blocks, each of which stands for all text up to its end."""

from headrace_gateway.simulated import BYTES_PER_TOKEN


def bytes_of(tokens: int) -> int:
    """Return the bytes of text that so many tokens have where texts are known: always as many."""
    return int(tokens * BYTES_PER_TOKEN)


def cut_blocks(text: bytes, size: int, *, partial: bool, most: int | None = None) -> list[int]:
    """Hash `text` in blocks of `size` bytes, `most` at most; `partial`: the unfinished last one, too."""
    end = len(text) if partial else len(text) - size + 1
    starts = range(0, end, size)
    hashes, chain = [], 0
    for start in starts if most is None else starts[:most]:
        chain = hash((chain, text[start : start + size]))
        hashes.append(chain)
    return hashes
