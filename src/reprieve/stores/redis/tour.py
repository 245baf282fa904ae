"""A tour: one claim that goes round the partitions until its limit is reached, or nobody has anything."""

import math

from reprieve.core.change import Change
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.stores.protocol import Answer, Claim, Claimed

MOST_VISITS = 256
"""Rounds of one claim at the most: visits are counted inside the number of the claim."""

OPENS_WITHIN = 1_000
"""Milliseconds after which a session that is not known to a partition asks there again."""

MOST_DEALS = 12
"""A job goes through five limits, and several partitions may have met different ones of them."""

STAY, ROUND = 20, 100
"""Milliseconds for which a session stays in one partition at the most, and in which it comes to all of them."""


class Stay:
    """Where a session asks first, and alone, while there is plenty: one large call costs less than several small ones.

    It goes on to the next partition after a moment, so all are served in turn. As soon as there is less than what is
    wanted, the session asks everybody at once again, and nobody waits behind an empty partition.
    """

    def __init__(self, partitions: int, idle: dict[int, float]) -> None:
        """Stay nowhere yet."""
        self._partitions = partitions
        self._idle = idle
        self._place: int | None = None
        self._until = 0

    def place(self, now: int) -> int | None:
        """Answer where to ask first; None: everywhere."""
        if self._place is not None and now >= self._until:
            self._move(now)
        return self._place

    def note(self, now: int, *, has_plenty: bool) -> None:
        """Note whether all that was wanted was found."""
        if not has_plenty:
            self._place = None
        elif self._place is None or is_idle(self._idle, self._place, now):
            self._move(now)

    def _move(self, now: int) -> None:
        """Go to the next partition in which there may be something."""
        last = -1 if self._place is None else self._place
        places = [(last + step) % self._partitions for step in range(1, self._partitions + 1)]
        self._place = next((place for place in places if not is_idle(self._idle, place, now)), None)
        self._until = now + min(STAY, ROUND // self._partitions)


def is_idle(idle: dict[int, float], partition: int, now: int) -> bool:
    """Whether there is nothing in a partition, as far as is known."""
    return idle.get(partition, -math.inf) > now


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
        self._answers: list[Answer] = ["refused"] * len(claim.changes)
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
        return sorted(fresh, key=lambda number: is_idle(self._idle, number, self.claim.now)) or sorted(self._more)

    def plan(self) -> dict[int, int]:
        """Answer whom to ask next for how many; in the first round also those who only have to settle."""
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
            self._stay.note(self.claim.now, has_plenty=self.left <= 0)

    def begin_again(self) -> None:
        """Ask everybody once more: shares of limits have moved."""
        self._deals += 1
        self._asked.clear()
        self._more.clear()

    def changes_for(self, number: int) -> tuple[Change, ...]:
        """Answer the changes that a visit settles."""
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
            for place, answer in zip(self._own.get(number, ()), claimed.answers, strict=True):
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
        """Answer what came of it."""
        if self.claim.limit <= 0:
            return Claimed(answers=tuple(self._answers), jobs=(), next_at=None)
        times = [self._idle.get(number, -math.inf) for number in range(self.partitions)]
        soonest = -math.inf if self.left <= 0 else min(times)
        next_at = None if soonest == math.inf else int(max(soonest, self.claim.now))
        return Claimed(answers=tuple(self._answers), jobs=tuple(self._jobs), next_at=next_at)
