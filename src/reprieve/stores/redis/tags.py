"""Hash tags: they decide on which node of a Cluster a partition lies.

With random slots two of four partitions would lie on the same node nine times out of ten. So a tag is chosen for its
slot: the second partition lies half the Cluster away from the first, the next two in the gaps, and so on. However many
nodes share the slots in equal ranges, each has its part of the partitions, also after more of either are added.
"""

import itertools
from functools import cache
from typing import Final

from redis.crc import key_slot

SLOTS: Final = 16_384
"""Slots of a Cluster."""

MAX_MISSED_SLOTS: Final = 16
"""Slots by which a tag may miss its place: finding one takes about a thousand tries, once."""


@cache
def tag_of(prefix: str, number: int) -> str:
    """Return the tag of a partition; it never changes."""
    first = f"{{{prefix}:0}}"
    if number == 0:
        return first
    wanted = key_slot(first.encode()) + _distance(number)
    tags = (f"{{{prefix}:{number}.{count}}}" for count in itertools.count())
    return next(tag for tag in tags if (key_slot(tag.encode()) - wanted) % SLOTS < MAX_MISSED_SLOTS)


def partitions_for(nodes: int) -> int:
    """Return how many partitions are spread evenly over so many nodes."""
    is_power_of_two = nodes & (nodes - 1) == 0
    least = nodes if is_power_of_two else 5 * nodes // 2
    return 1 << (least - 1).bit_length()


def _distance(number: int) -> int:
    """Return how many slots after the first a partition lies: the bits of its number, reversed, as a fraction."""
    distance, step = 0, SLOTS
    while number:
        step //= 2
        distance += step * (number & 1)
        number >>= 1
    return distance
