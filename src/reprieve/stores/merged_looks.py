"""Looks at several partitions, merged in order."""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias

from reprieve.stores.places import Position
from reprieve.stores.search import Found, Look

_Rank: TypeAlias = tuple[int, float, int]
"""The number of a place, a time, and an id."""

_FIRST: Final[_Rank] = (-1, -inf, 0)


class _Ranked(NamedTuple):
    """A job that a look has found, and what orders it among those of other looks."""

    rank: _Rank
    look: int
    found: Found


def merge_looks(
    looks: Sequence[Look], starts: Sequence[Position | None], limit: int, *, newest: bool
) -> tuple[Look, list[Position | None]]:
    """Return the first jobs of all looks together, and where each partition goes on; `starts` is where it began.

    A look that was bounded does not know what follows: jobs of others after its end are left to the next page.
    The order of jobs that come in groups of lanes holds within a group of each partition only.
    """
    ranked: list[_Ranked] = []
    limits: list[_Rank] = []
    for number, looked in enumerate(looks):
        rank = _FIRST
        for found in looked.found:
            # Groups of lanes follow each other, whatever the times of their jobs: a look is not sorted by these.
            rank = max(rank, _rank(found.position, newest=newest))
            ranked.append(_Ranked(rank, number, found))
        if looked.resume is not None:
            limits.append(max(rank, _rank(looked.resume, newest=newest)))
    ranked.sort(key=lambda one: (one.rank, one.look))
    chosen = [one for one in ranked if not limits or one.rank <= min(limits)][:limit]
    following: list[Position | None] = []
    for number, (looked, start) in enumerate(zip(looks, starts, strict=True)):
        taken = [one.found for one in chosen if one.look == number]
        is_whole = len(taken) == len(looked.found)
        following.append(looked.resume if is_whole else taken[-1].position if taken else start)
    has_more = any(position is not None for position in following)
    reached_at = _reached_at(chosen, looks, newest=newest) if has_more else None
    merged = [one.found for one in chosen]
    return Look(merged, None, sum(looked.examined for looked in looks), reached_at), following


def _reached_at(chosen: Sequence[_Ranked], looks: Sequence[Look], *, newest: bool) -> int | None:
    """Return how far a page got that goes on: to its last job, or, if it has none, as far as every look did."""
    last = chosen[-1].found.position.key if chosen else None
    if last is not None:
        return last.at
    reached = [looked.reached_at for looked in looks if looked.reached_at is not None]
    return (max(reached) if newest else min(reached)) if reached else None


def _rank(position: Position, *, newest: bool) -> _Rank:
    """Return what orders a position; the start of a place is before its jobs, that of a group of lanes is not."""
    key = position.key
    if key is None:
        return position.place, -inf, 0
    if key.at < 0:
        return position.place, inf, 0
    sign = -1 if newest else 1
    return position.place, sign * key.at, sign * int(str(key.id) or "0", 16)
