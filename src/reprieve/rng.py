"""Chance: the only place that draws it."""

import random


def draw() -> float:
    """Draw a number in [0, 1)."""
    return random.random()  # noqa: S311 - spreads waits, guards nothing
