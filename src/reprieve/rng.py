"""Chance: the only place that draws it."""

import random


def draw() -> float:
    """Draw a number in [0, 1)."""
    return random.random()  # noqa: S311 - spreads waits, guards nothing


def bits(count: int) -> int:
    """Draw so many random bits."""
    return random.getrandbits(count)
