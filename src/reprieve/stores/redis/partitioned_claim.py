"""A partitioned claim: one claim that asks the partitions, in rounds, until its limit is reached or none has more."""

import math
from typing import Final

from reprieve.core.change import Change
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.core.series import SeriesDelta
from reprieve.stores.protocol import ChangeResult, Claim, Claimed
from reprieve.stores.redis.affinity import PartitionAffinity

MAX_CALLS_PER_CLAIM: Final = 256
"""Calls of one claim to a partition: they are counted inside the number of the claim."""

UNOPENED_MS: Final = 1_000
"""How long a session leaves a partition alone that does not know it."""

MAX_DIVISIONS: Final = 12
"""How often limits may be divided anew for a claim that has found nothing: a job goes through five limits, and several
partitions may hold shares of different ones."""


class PartitionedClaim:
    """A claim in progress. It is kept until the next, so that a repeat goes on where the first call broke off."""

    def __init__(self, claim: Claim, partitions: int, idle: dict[int, float], affinity: PartitionAffinity) -> None:
        """Take the claim; `idle` says until when partitions have nothing, as far as the session knows."""
        self.claim = claim
        self.partitions = partitions
        self.is_done = False
        """Whether the claim is complete; a repeat returns the same."""
        self._calls = 0
        self._left = claim.limit
        self._divisions = 0
        self._idle = idle
        self._affinity = affinity
        self._first = affinity.first(claim.now)
        self._own_changes: dict[int, list[int]] = {}
        """Indices of the changes that belong to each partition."""
        for index, change in enumerate(claim.changes):
            self._own_changes.setdefault(partition_of(change.job.id), []).append(index)
        self._own_starts: dict[int, list[Job]] = {}
        """The jobs of each partition whose starts are to be told there."""
        for job in claim.starts:
            self._own_starts.setdefault(partition_of(job.id), []).append(job)
        self._counted_by = 0
        """The partition of this round that takes what the session has counted for series."""
        self._is_counted = False
        self._settled: set[int] = set()
        self._round: dict[int, int] = {}
        """Partitions that this round still has to call, and for how many jobs."""
        self._asked: set[int] = set()
        self._has_more: set[int] = set()
        self._is_alive: dict[int, bool] = {}
        """Whether the session lives, by partition."""
        self._results: list[ChangeResult] = ["refused"] * len(claim.changes)
        self._jobs: list[Job] = []

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to settle, and no partition to ask."""
        if self._round or self._unsettled() or not self._is_alive:
            return False
        return self._left <= 0 or not self._askable() or self._calls >= MAX_CALLS_PER_CLAIM - 1

    @property
    def may_divide(self) -> bool:
        """Whether limits may be divided anew: the claim is not filled, and it has not been done too often."""
        return self._left > 0 and self._divisions < (1 if self._jobs else MAX_DIVISIONS)

    def _unsettled(self) -> set[int]:
        """Return the partitions that have changes to settle, or starts to tell."""
        return (self._own_changes.keys() | self._own_starts.keys()) - self._settled

    def _askable(self) -> list[int]:
        """Return the partitions to ask next: those not asked yet, idle ones last; then those that had more."""
        order = [(number + self.claim.number) % self.partitions for number in range(self.partitions)]
        fresh = [number for number in order if number not in self._asked]
        return sorted(fresh, key=lambda number: self._idle.get(number, -math.inf) > self.claim.now) or sorted(
            self._has_more
        )

    def next_round(self) -> dict[int, int]:
        """Return the partitions to call, and for how many jobs each; 0 where there are only changes to settle."""
        if not self._round:
            asked = self._askable()[: max(1, self._left)] if self._left > 0 else []
            if asked and not self._calls and self._first is not None:
                asked = [self._first]
            if asked:
                each, rest = divmod(self._left, len(asked))
                self._round = {number: each + (index < rest) for index, number in enumerate(asked)}
            for number in self._unsettled():
                self._round.setdefault(number, 0)
            if self.claim.limit <= 0 and not self.claim.changes:
                # The session only wants to be notified of what happens from now on.
                self._round = dict.fromkeys(range(self.partitions), 0)
            if not self._is_counted:
                self._counted_by = min(self._round, default=0)
        return dict(self._round)

    def end_round(self) -> None:
        """Count a round whose calls have all returned."""
        self._calls += 1

    def call_number(self) -> int:
        """Return the number of the session's call in this round: a call whose reply was lost is repeated under it."""
        return self.claim.number * MAX_CALLS_PER_CLAIM + self._calls

    def changes_for(self, number: int) -> tuple[Change, ...]:
        """Return the changes that a partition has to settle."""
        if number in self._settled:
            return ()
        return tuple(self.claim.changes[index] for index in self._own_changes.get(number, ()))

    def starts_for(self, number: int) -> tuple[Job, ...]:
        """Return the jobs whose starts a partition has to tell."""
        return () if number in self._settled else tuple(self._own_starts.get(number, ()))

    def series_for(self, number: int) -> tuple[SeriesDelta, ...]:
        """Return what a partition has to count for series."""
        return self.claim.series if number == self._counted_by and not self._is_counted else ()

    def note(self, number: int, limit: int, claimed: Claimed | None) -> None:
        """Note what a partition returned; None: the session is dead there."""
        del self._round[number]
        self._is_alive[number] = claimed is not None
        if limit:
            self._asked.add(number)
            self._has_more.discard(number)
        if claimed is None:
            self._settled.add(number)
            # A session is opened in a new partition by its next heartbeat.
            self._idle[number] = self.claim.now + UNOPENED_MS
            return
        if number not in self._settled:
            for index, result in zip(self._own_changes.get(number, ()), claimed.results, strict=True):
                self._results[index] = result
            self._settled.add(number)
        self._is_counted = self._is_counted or number == self._counted_by
        self._jobs += claimed.jobs
        self._left -= len(claimed.jobs)
        if limit:
            next_at = math.inf if claimed.next_at is None else claimed.next_at
            if len(claimed.jobs) == limit or next_at <= self.claim.now:
                self._idle.pop(number, None)
                self._has_more |= {number} if claimed.jobs else set()
            else:
                self._idle[number] = next_at

    def ask_again(self) -> None:
        """Ask all partitions once more: limits were divided anew."""
        self._divisions += 1
        self._asked.clear()
        self._has_more.clear()

    def finish(self) -> None:
        """Complete the claim."""
        self.is_done = True
        if self.claim.limit > 0:
            is_exhausted = self._first is not None and self._calls > 1
            self._affinity.note(self.claim.now, is_filled=self._left <= 0, is_exhausted=is_exhausted)

    def is_dead(self, opened: set[int]) -> bool:
        """Whether the session is dead: everywhere, or where it has lived before. Adds to `opened` where it lives."""
        dead = {number for number, is_alive in self._is_alive.items() if not is_alive}
        is_dead = bool(dead) and (dead == self._is_alive.keys() or bool(dead & opened))
        opened |= self._is_alive.keys() - dead
        return is_dead and not (self.claim.changes and dead != self._is_alive.keys())

    def claimed(self) -> Claimed:
        """Return the results, the jobs, and when there may be more."""
        if self.claim.limit <= 0:
            return Claimed(results=tuple(self._results), jobs=(), next_at=None)
        times = [self._idle.get(number, -math.inf) for number in range(self.partitions)]
        soonest = -math.inf if self._left <= 0 else min(times)
        next_at = None if soonest == math.inf else int(max(soonest, self.claim.now))
        return Claimed(results=tuple(self._results), jobs=tuple(self._jobs), next_at=next_at)
