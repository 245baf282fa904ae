"""Random numbers: the only module that draws them."""

import random


def draw() -> float:
    """Return a random number in [0, 1)."""
    return random.random()  # noqa: S311 - spreads waits, guards nothing


def bits(count: int) -> int:
    """Return so many random bits."""
    return random.getrandbits(count)
