"""Looks at several partitions, merged in order."""

from collections.abc import Sequence
from typing import NamedTuple

from reprieve.stores.places import Position
from reprieve.stores.search import Found, Look


class _Ranked(NamedTuple):
    """A job that a look has found, and what orders it among those of other looks."""

    rank: tuple[int, int, int]
    look: int
    found: Found


def merge_looks(
    looks: Sequence[Look], starts: Sequence[Position | None], limit: int, *, newest: bool
) -> tuple[Look, list[Position | None]]:
    """Return the first jobs of all looks together, and where each partition goes on; `starts` is where it began.

    A look that was bounded does not know what follows: jobs of others after its end are left to the next page.
    The order of jobs that come in groups of lanes holds within a group of each partition only.
    """
    ends = [_rank(looked.resume, newest=newest) for looked in looks if looked.resume is not None]
    limits = [end for end in ends if end is not None]
    ranked = [
        _Ranked(_rank(found.position, newest=newest) or (0, 0, 0), number, found)
        for number, looked in enumerate(looks)
        for found in looked.found
    ]
    ranked.sort(key=lambda one: (one.rank, one.look))
    chosen = [one for one in ranked if not limits or one.rank <= min(limits)][:limit]
    following: list[Position | None] = []
    for number, (looked, start) in enumerate(zip(looks, starts, strict=True)):
        taken = [one.found for one in chosen if one.look == number]
        is_whole = len(taken) == len(looked.found)
        following.append(looked.resume if is_whole else taken[-1].position if taken else start)
    reached = [looked.reached_at for looked in looks if looked.reached_at is not None]
    reached_at = (max(reached) if newest else min(reached)) if reached else None
    merged = [one.found for one in chosen]
    return Look(merged, None, sum(looked.examined for looked in looks), reached_at), following


def _rank(position: Position, *, newest: bool) -> tuple[int, int, int] | None:
    """Return what orders a position; None for the start of a place or of a group of lanes."""
    key = position.key
    if key is None or key.at < 0:
        return None
    sign = -1 if newest else 1
    return position.place, sign * key.at, sign * int(str(key.id) or "0", 16)
