"""Physical KV blocks: a LIFO free list and a prefix cache of whole hash blocks with reference counts and LRU eviction.

A block is in exactly one of three places: on the free list, in a cached node, or private to one running request. Blocks
of a node are shared by all that hold the node and are *never written again*; private ones have one writer.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Node:
    """One cached hash block: the prefix of a prompt that ends with ``hash_id``, and the blocks of its tokens."""

    parent: Node | None
    hash_id: int
    blocks: tuple[int, ...]
    holders: int = 0
    """Running requests that hold this node. A holder of a node holds its whole chain of parents."""
    children: dict[int, Node] = field(default_factory=dict)


class BlockPool:
    """``total`` physical blocks. The free list starts shuffled, so that no table is the identity.

    Idle nodes (no holder) wait in LRU order. A request gives its chain back from the leaf to the root, and whoever uses
    a node uses its parents: so the oldest idle node never has a child left, and eviction needs no search for leaves.
    """

    def __init__(self, total: int, seed: int) -> None:
        self.total = total
        self.evictions = 0
        self._free = list(range(total))
        random.Random(seed).shuffle(self._free)
        self._root = Node(None, -1, ())
        self._idle: OrderedDict[Node, None] = OrderedDict()
        self._idle_blocks = 0

    @property
    def available(self) -> int:
        """Blocks that :meth:`take` can hand out: free ones and those of idle nodes."""
        return len(self._free) + self._idle_blocks

    def take(self, count: int) -> list[int] | None:
        """``count`` blocks, the last freed first, evicting idle nodes as needed; None, nothing done, if too few."""
        if count > self.available:
            return None
        while len(self._free) < count:
            self._evict()
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        taken.reverse()
        return taken

    def give(self, blocks: Sequence[int]) -> None:
        """Return private blocks."""
        self._free.extend(blocks)

    def match(self, hash_ids: Sequence[int]) -> list[Node]:
        """The longest cached chain that starts ``hash_ids``; nothing is held yet."""
        chain: list[Node] = []
        children = self._root.children
        for hash_id in hash_ids:
            node = children.get(hash_id)
            if node is None:
                break
            chain.append(node)
            children = node.children
        return chain

    def idle_blocks_of(self, chain: Sequence[Node]) -> int:
        """Blocks of the chain that are counted as available now and no longer once it is held."""
        return sum(len(node.blocks) for node in chain if not node.holders)

    def hold(self, chain: Sequence[Node]) -> None:
        """Hold every node of a chain, root first."""
        for node in chain:
            if not node.holders:
                del self._idle[node]
                self._idle_blocks -= len(node.blocks)
            node.holders += 1

    def release(self, chain: Sequence[Node]) -> None:
        """Let go of a chain (root first, as held); nodes without a holder become idle, leaf first."""
        for node in reversed(chain):
            node.holders -= 1
            if not node.holders:
                self._idle[node] = None
                self._idle_blocks += len(node.blocks)

    def insert(self, parent: Node | None, hash_id: int, blocks: Sequence[int]) -> Node:
        """Hold the child ``hash_id`` of ``parent`` (None: the root), which the caller holds.

        A new node takes ``blocks`` over. If another request was faster, its node is held, and the caller's blocks stay
        private: doubles, that the caller gives back.
        """
        above = parent or self._root
        node = above.children.get(hash_id)
        if node is not None:
            self.hold([node])
            return node
        node = Node(parent, hash_id, tuple(blocks), holders=1)
        above.children[hash_id] = node
        return node

    def nodes(self) -> Iterator[Node]:
        """Every cached node, a parent before its children."""
        pending = list(self._root.children.values())
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())

    def free(self) -> tuple[int, ...]:
        """Blocks on the free list, the next one last."""
        return tuple(self._free)

    def _evict(self) -> None:
        node, _ = self._idle.popitem(last=False)
        del (node.parent or self._root).children[node.hash_id]
        self._idle_blocks -= len(node.blocks)
        self._free.extend(node.blocks)
        self.evictions += 1
