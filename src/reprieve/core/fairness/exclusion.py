"""Exclusion: what a claim skips, because its session cannot run some tasks, and how much it may skip.

Other sessions may run these tasks, so a skipped lane stays open and its tenant stays a candidate. Where more is skipped
than the bounds allow, each claim looks at another part of the rest: so no number of excluded lanes hides the others.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from reprieve.core.fairness.settings import DEFAULTS, FairnessSettings

_TENANT_STEP, _LANE_STEP, _STEPS = 49_473, 37_345, 65_536
"""Which part a claim looks at follows from its number. These steps spread the parts of tenants and of lanes evenly and
independently of each other, even if only every second or third claim of a session asks."""

_END_SHARE = 0.5
"""The share of the claims that look at the end; the others look at one part after the other."""


class Turn(NamedTuple):
    """Which part a claim looks at, of tenants and of the lanes of one: from 0 to below 1 of all parts, or `AT_END`."""

    tenants: float
    lanes: float


AT_END = -1.0


def turn_of(number: int) -> Turn:
    """Return which parts the claim with this number looks at."""
    return Turn(_turn(number, _TENANT_STEP), _turn(number, _LANE_STEP))


def _turn(number: int, step: int) -> float:
    share = number * step % _STEPS / _STEPS
    return AT_END if share < _END_SHARE else (share - _END_SHARE) / (1 - _END_SHARE)


class Exclusion:
    """What one claim skips of one queue."""

    def __init__(self, tasks: Collection[int], number: int, settings: FairnessSettings = DEFAULTS) -> None:
        """Take the ids of the limiters of the excluded tasks, and the number of the claim."""
        self.tasks = tasks
        self._settings = settings
        self._turn = turn_of(number)
        self._tenants_left = settings.max_excluded_tenants
        self._has_skipped = False
        self._has_jumped = False
        self._parts = 1

    def skip(self, *, is_whole_tenant: bool) -> None:
        """Note that lanes of a tenant were skipped, all that were read or some."""
        self._has_skipped = True
        self._tenants_left -= is_whole_tenant

    @property
    def is_far(self) -> bool:
        """Whether the claim has passed over as many tenants as it may, before it looks elsewhere in the fair order."""
        return self._tenants_left <= 0

    def jump(self, count: int) -> int | None:
        """Return how many of the next `count` candidates to leave out; None if the claim did so before."""
        if self._has_jumped:
            return None
        self._has_jumped = True
        size = self._tenants_left = self._settings.max_excluded_tenants
        return self._part(count, size, self._turn.tenants)

    def lane_part(self, counts: Sequence[int]) -> tuple[int, list[int]]:
        """Return how many lanes to look through of tenants that have so many, and how many of each to leave out."""
        size = max(self._settings.max_lanes_read, self._settings.max_excluded_lanes // len(counts))
        return size, [self._part(count, size, self._turn.lanes) for count in counts]

    def _part(self, count: int, size: int, turn: float) -> int:
        """Return how many of `count` items to leave out before the `size` items that this claim looks at."""
        parts = -(-count // size)
        if parts <= 1:
            return 0
        self._parts = max(self._parts, 2 * parts)
        # Tenants and lanes that are served stand at the end, behind all that are not.
        return count - size if turn == AT_END else size * int(turn * parts)

    def next_at(self, now: int, *, has_picks: bool) -> int | None:
        """Return when the session looks again; None if nothing was skipped."""
        if not self._has_skipped:
            return None
        settings = self._settings
        if self._parts == 1:
            return now + settings.excluded_recheck_ms
        wait = max(settings.min_excluded_recheck_ms, settings.excluded_recheck_ms // self._parts)
        return now if has_picks else now + wait
