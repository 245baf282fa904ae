"""Hash tags: they decide on which node of a Cluster a partition lies.

Chance alone would put two of four partitions on the same node nine times out of ten. So a tag is chosen for its slot:
that of the first partition is where it is, the second lies half the Cluster away from it, the next two in the gaps, and
so on. However many nodes share the slots in equal ranges, each has its part of the partitions, and it stays so when
there are more of either.
"""

import itertools
from functools import cache
from typing import Final

from redis.crc import key_slot

SLOTS: Final = 16_384
"""Of a Cluster."""

NEAR: Final = 16
"""Slots by which a tag may miss its place: about a thousand tries, once."""


@cache
def tag_of(prefix: str, number: int) -> str:
    """Return the tag of a partition; it never changes."""
    first = f"{{{prefix}:0}}"
    if number == 0:
        return first
    wanted = key_slot(first.encode()) + _place(number)
    tags = (f"{{{prefix}:{number}.{count}}}" for count in itertools.count())
    return next(tag for tag in tags if (key_slot(tag.encode()) - wanted) % SLOTS < NEAR)


def partitions_for(nodes: int) -> int:
    """Return how many partitions are spread evenly over so many nodes."""
    is_power_of_two = nodes & (nodes - 1) == 0
    least = nodes if is_power_of_two else 5 * nodes // 2
    return 1 << (least - 1).bit_length()


def _place(number: int) -> int:
    """Return how far from the first a partition lies: the bits of its number, read from the end, as a fraction."""
    place, step = 0, SLOTS
    while number:
        step //= 2
        place += step * (number & 1)
        number >>= 1
    return place
