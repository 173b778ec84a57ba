"""A radix tree of texts with owners, by the rules of vllm-router's.

Read as source: src/tree.rs of vllm-project/router at 1dbe507.

Every node belongs to all owners whose texts go through it. A match is given to the owner who made the node
where it ends, as long as he has it. Leaves that were not met for longest are evicted.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

MATCHES_A_TOUCH = 8  # only every eighth event that is a match counts as use


@dataclass(slots=True, eq=False)
class Node:
    """A piece of text behind its parent's."""

    text: bytes
    parent: "Node | None"
    owner: str | None  # who made it
    used: dict[str, int] = field(default_factory=dict)  # owner → event at which it was last met as an end
    children: dict[int, "Node"] = field(default_factory=dict)  # by first byte

    def is_end_of(self, owner: str) -> bool:
        """Tell whether the owner's texts end here at the latest."""
        return owner in self.used and not any(owner in child.used for child in self.children.values())


class RadixTree:
    """Texts by owner."""

    def __init__(self) -> None:
        self.root = Node(b"", None, None)
        self.sizes: dict[str, int] = {}  # bytes by owner
        self._events = count()

    def insert(self, text: bytes, owner: str) -> None:
        """Add a text of an owner."""
        self.sizes.setdefault(owner, 0)
        self.root.used.setdefault(owner, 0)
        node, start = self.root, 0
        while start < len(text):
            child = node.children.get(text[start])
            if child is None:
                rest = text[start:]
                node.children[text[start]] = Node(rest, node, owner, {owner: next(self._events)})
                self.sizes[owner] += len(rest)
                return
            shared = common_length(text, start, child.text)
            if shared < len(child.text):
                child = split(child, shared)
            if owner not in child.used:
                self.sizes[owner] += shared
                child.used[owner] = 0
            node, start = child, start + shared
        if node is not self.root:
            node.used[owner] = next(self._events)

    def match(self, text: bytes) -> tuple[str | None, int]:
        """Return the owner of the longest beginning that is known, and its bytes."""
        node, start = self.root, 0
        while start < len(text) and (child := node.children.get(text[start])) is not None:
            shared = common_length(text, start, child.text)
            node, start = child, start + shared
            if shared < len(child.text):
                break
        if node.owner not in node.used:
            node.owner = next(iter(node.used), None)
        event = next(self._events)
        if node.owner is not None and event % MATCHES_A_TOUCH == 0:
            node.used[node.owner] = event
        return node.owner, start

    def evict(self, most: int) -> None:
        """Take ends from owners who have more than `most` bytes, the longest unused first."""
        order = count()
        ends = [
            (used, next(order), owner, node)
            for node in self._nodes()
            for owner, used in node.used.items()
            if node.is_end_of(owner)
        ]
        heapq.heapify(ends)
        while ends:
            _, _, owner, node = heapq.heappop(ends)
            parent = node.parent
            if parent is None or self.sizes[owner] <= most:
                continue
            self._take(node, owner)
            if parent.is_end_of(owner):
                heapq.heappush(ends, (parent.used[owner], next(order), owner, parent))

    def remove(self, owner: str) -> None:
        """Forget an owner."""
        for node in reversed(list(self._nodes())):
            if owner in node.used and node.parent is not None:
                self._take(node, owner)
        self.root.used.pop(owner, None)
        self.sizes.pop(owner, None)

    def _take(self, node: Node, owner: str) -> None:
        self.sizes[owner] -= len(node.text)
        del node.used[owner]
        if not node.used and not node.children and node.parent is not None:
            del node.parent.children[node.text[0]]

    def _nodes(self) -> Iterator[Node]:
        """Go through all nodes, parents before their children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()


def split(node: Node, length: int) -> Node:
    """Put a node for the first `length` bytes of `node` before it, and return that."""
    first = Node(node.text[:length], node.parent, node.owner, dict(node.used))
    node.text = node.text[length:]
    first.children[node.text[0]] = node
    if node.parent is not None:
        node.parent.children[first.text[0]] = first
    node.parent = first
    return first


def common_length(text: bytes, start: int, piece: bytes) -> int:
    """Count the bytes from `start` on that agree with `piece`."""
    low, high = 0, min(len(text) - start, len(piece))
    if text[start : start + high] == piece[:high]:
        return high
    while high - low > 1:  # agrees up to `low`, not up to `high`
        middle = (low + high) // 2
        if text[start + low : start + middle] == piece[low:middle]:
            low = middle
        else:
            high = middle
    return low
