"""Block pool and prefix cache on their own."""

from __future__ import annotations

from inputmeta.conformance.trace.blocks import BlockPool


def chain_of(pool, *hash_ids):
    """Cache a chain of hash blocks of two physical blocks each, held by the caller."""
    chain = []
    for hash_id in hash_ids:
        chain.append(pool.insert(chain[-1] if chain else None, hash_id, pool.take(2)))
    return chain


def test_the_last_block_freed_is_the_next_taken():
    pool = BlockPool(8, seed=0)
    blocks = pool.take(3)
    pool.give(blocks)
    assert pool.take(3) == blocks[::-1]


def test_blocks_start_in_no_order():
    assert BlockPool(64, seed=0).take(64) not in (list(range(64)), list(range(64))[::-1])


def test_too_many_blocks_take_nothing():
    pool = BlockPool(4, seed=0)
    assert pool.take(5) is None
    assert pool.available == len(pool.free()) == 4


def test_a_chain_is_found_by_its_head():
    pool = BlockPool(20, seed=0)
    chain = chain_of(pool, 1, 2, 3)
    assert pool.match((1, 2, 3, 4)) == chain
    assert pool.match((1, 2, 9)) == chain[:2]
    assert pool.match((2, 3)) == []


def test_held_nodes_are_not_evicted():
    pool = BlockPool(6, seed=0)
    chain = chain_of(pool, 1, 2)
    assert pool.available == 2
    assert pool.take(3) is None
    pool.release(chain)
    assert pool.available == 6


def test_eviction_goes_from_the_leaf_and_from_the_oldest():
    pool = BlockPool(8, seed=0)
    old, new = chain_of(pool, 1, 2), chain_of(pool, 5, 6)
    pool.release(old)
    pool.release(new)
    assert pool.take(2) == list(old[1].blocks)[::-1]
    assert pool.match((1, 2)) == old[:1]
    pool.hold(pool.match((1,)))
    assert pool.take(2) == list(new[1].blocks)[::-1]
    assert pool.evictions == 2


def test_a_double_holds_the_first_node_and_keeps_its_own_blocks():
    pool = BlockPool(8, seed=0)
    (node,) = chain_of(pool, 1)
    double = pool.take(2)
    assert pool.insert(None, 1, double) is node
    assert node.holders == 2
    assert not set(double) & set(node.blocks)


def test_idle_blocks_of_a_chain_are_those_nobody_holds():
    pool = BlockPool(8, seed=0)
    chain = chain_of(pool, 1, 2)
    pool.release(chain[1:])
    assert pool.idle_blocks_of(chain) == 2
