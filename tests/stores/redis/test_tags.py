"""Tags: partitions share the slots of a Cluster evenly, however many there are of them and of nodes."""

from collections import Counter

import pytest
from redis.crc import key_slot

from reprieve.stores.redis.tags import SLOTS, partitions_for, tag_of

PREFIXES = ["reprieve", "shop", "a", "jobs of ours"]


def shares(prefix: str, partitions: int, nodes: int) -> list[int]:
    """Return how many partitions each node has, if they share the slots in equal ranges."""
    slots = [key_slot(tag_of(prefix, number).encode()) for number in range(partitions)]
    counts = Counter(slot * nodes // SLOTS for slot in slots)
    return [counts[node] for node in range(nodes)]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("nodes", range(1, 17))
def test_no_node_has_many_more_than_its_part(prefix: str, nodes: int) -> None:
    partitions = partitions_for(nodes)
    assert nodes <= partitions <= 5 * nodes
    assert max(shares(prefix, partitions, nodes)) <= 1.3 * partitions / nodes


@pytest.mark.parametrize("prefix", PREFIXES)
def test_twice_the_partitions_divide_again_what_there_was(prefix: str) -> None:
    for nodes in (1, 2, 4, 8, 16):
        assert shares(prefix, 64, nodes) == [64 // nodes] * nodes


def test_tags_are_told_apart_and_first_is_plain() -> None:
    assert tag_of("reprieve", 0) == "{reprieve:0}"
    assert len({tag_of("reprieve", number) for number in range(64)}) == 64
    assert tag_of("reprieve", 3) == tag_of("reprieve", 3) != tag_of("shop", 3)
