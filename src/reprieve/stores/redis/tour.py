"""A tour: one claim that goes round the partitions until its limit is reached, or nobody has anything."""

import math

from reprieve.core.change import Change
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.rng import bits
from reprieve.stores.protocol import ChangeResult, Claim, Claimed

MOST_VISITS = 256
"""Rounds of one claim at the most: visits are counted inside the number of the claim."""

OPENS_WITHIN = 1_000
"""Milliseconds after which a session that is not known to a partition asks there again."""

MOST_DEALS = 12
"""A job goes through five limits, and several partitions may have met different ones of them."""

STAY, ROUND = 20, 100
"""Milliseconds for which a session stays in one partition at the most, and in which it should have come to all."""


class Stay:
    """Where a session asks first, and alone, while there is plenty: one large call costs less than several small ones.

    It goes on to the next partition after a moment, so all are served in turn. As soon as there is less than what is
    wanted, or the session asks but rarely, it asks everybody at once again, and nobody waits for its turn to come.
    """

    def __init__(self, partitions: int) -> None:
        """Begin anywhere: sessions that are woken by the same ring should not all go the same way."""
        self._partitions = partitions
        self._place = bits(16) % partitions
        self._until: int | None = None
        """When to go on; None: it stays nowhere."""

    def place(self, now: int) -> int | None:
        """Return where to ask first; None: everywhere."""
        if self._until is None or now >= self._until + STAY:
            self._until = None
            return None
        if now >= self._until:
            self._move(now)
        return self._place

    def note(self, now: int, *, is_filled: bool, is_spent: bool) -> None:
        """Note whether all that was wanted was found, and whether the one that was asked first had too little."""
        if not is_filled:
            self._until = None
        elif self._until is None or is_spent:
            self._move(now)

    def _move(self, now: int) -> None:
        self._place = (self._place + 1) % self._partitions
        self._until = now + min(STAY, ROUND // self._partitions)


class Tour:
    """A claim on its way. It is kept until the next, so that a repeat goes on where the first time broke off."""

    def __init__(self, claim: Claim, partitions: int, idle: dict[int, float], stay: Stay) -> None:
        """Begin where the session stays, or with the partitions in which there may be something, in turn."""
        self.claim = claim
        self.count = 0
        self.is_done = False
        """Whether there is an answer, which a repeat is given as well."""
        self.left = claim.limit
        self._deals = 0
        """How often shares of limits were dealt anew on the way."""
        self.partitions = partitions
        self._idle = idle
        self._stay = stay
        self._first = stay.place(claim.now)
        self._own: dict[int, list[int]] = {}
        for place, change in enumerate(claim.changes):
            self._own.setdefault(partition_of(change.job.id), []).append(place)
        self._settled: set[int] = set()
        self._round: dict[int, int] = {}
        """What is still under way of the round."""
        self._asked: set[int] = set()
        self._more: set[int] = set()
        self._found: dict[int, bool] = {}
        """Whether the session lives, by partition."""
        self._answers: list[ChangeResult] = ["refused"] * len(claim.changes)
        self._jobs: list[Job] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be settled, nor anybody to be asked."""
        if self._round or self._own.keys() - self._settled or not self._found:
            return False
        return self.left <= 0 or not self._pool() or self.count >= MOST_VISITS - 1

    def _pool(self) -> list[int]:
        order = [(number + self.claim.number) % self.partitions for number in range(self.partitions)]
        fresh = [number for number in order if number not in self._asked]
        return sorted(fresh, key=lambda number: self._idle.get(number, -math.inf) > self.claim.now) or sorted(
            self._more
        )

    def plan(self) -> dict[int, int]:
        """Return whom to ask next for how many; in the first round also those who only have to settle."""
        if not self._round:
            pool = self._pool()[: max(1, self.left)] if self.left > 0 else []
            if pool and not self.count and self._first is not None:
                pool = [self._first]
            if pool:
                each, rest = divmod(self.left, len(pool))
                self._round = {number: each + (place < rest) for place, number in enumerate(pool)}
            for number in self._own.keys() - self._settled:
                self._round.setdefault(number, 0)
            if self.claim.limit <= 0 and not self.claim.changes:
                # Nothing is wanted but to hear the bell from now on.
                self._round = dict.fromkeys(range(self.partitions), 0)
        return dict(self._round)

    @property
    def may_deal(self) -> bool:
        """Whether other shares of limits might bring something; a job may have to go through as many as there are."""
        return self.left > 0 and self._deals < (1 if self._jobs else MOST_DEALS)

    def end(self) -> None:
        """Give the answer from now on."""
        self.is_done = True
        if self.claim.limit > 0:
            is_spent = self._first is not None and self.count > 1
            self._stay.note(self.claim.now, is_filled=self.left <= 0, is_spent=is_spent)

    def begin_again(self) -> None:
        """Ask everybody once more: shares of limits have moved."""
        self._deals += 1
        self._asked.clear()
        self._more.clear()

    def changes_for(self, number: int) -> tuple[Change, ...]:
        """Return the changes that a visit settles."""
        if number in self._settled:
            return ()
        return tuple(self.claim.changes[place] for place in self._own.get(number, ()))

    def note(self, number: int, limit: int, claimed: Claimed | None) -> None:
        """Note what a visit brought; None if the session is dead there."""
        del self._round[number]
        self._found[number] = claimed is not None
        if limit:
            self._asked.add(number)
            self._more.discard(number)
        if claimed is None:
            self._settled.add(number)
            # In a partition that was added the session is open with its next heartbeat.
            self._idle[number] = self.claim.now + OPENS_WITHIN
            return
        if number not in self._settled:
            for place, answer in zip(self._own.get(number, ()), claimed.results, strict=True):
                self._answers[place] = answer
            self._settled.add(number)
        self._jobs += claimed.jobs
        self.left -= len(claimed.jobs)
        if limit:
            next_at = math.inf if claimed.next_at is None else claimed.next_at
            if len(claimed.jobs) == limit or next_at <= self.claim.now:
                self._idle.pop(number, None)
                self._more |= {number} if claimed.jobs else set()
            else:
                self._idle[number] = next_at

    def is_dead(self, opened: set[int]) -> bool:
        """Whether the session is dead: everywhere, or where it has lived before."""
        dead = {number for number, is_alive in self._found.items() if not is_alive}
        is_dead = bool(dead) and (dead == self._found.keys() or bool(dead & opened))
        opened |= self._found.keys() - dead
        return is_dead and not (self.claim.changes and dead != self._found.keys())

    def claimed(self) -> Claimed:
        """Return what came of it."""
        if self.claim.limit <= 0:
            return Claimed(results=tuple(self._answers), jobs=(), next_at=None)
        times = [self._idle.get(number, -math.inf) for number in range(self.partitions)]
        soonest = -math.inf if self.left <= 0 else min(times)
        next_at = None if soonest == math.inf else int(max(soonest, self.claim.now))
        return Claimed(results=tuple(self._answers), jobs=tuple(self._jobs), next_at=next_at)
