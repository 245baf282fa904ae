"""Groups of failures: writes to the store what the failures of this process look like, each group once an hour.

It is done beside the settlement of jobs: a group that is lost is described again by its next failure, and no job waits.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from reprieve.clock import Clock, ticks
from reprieve.core.cause import fingerprint_of
from reprieve.core.failure import Failure
from reprieve.core.job import Cause
from reprieve.core.redact import redact
from reprieve.core.text import last_lines
from reprieve.errors import StoreError
from reprieve.stores.protocol import MAX_FAILURE_BYTES, FailureGroup, Store

DESCRIBE_AGAIN_SECONDS: Final = 3_600.0
"""Seconds after which a group that goes on failing is written again, so that the store knows that it was seen."""

WRITE_INTERVAL_SECONDS: Final = 1.0
"""Seconds between two writes."""

MAX_PENDING: Final = 50
"""Groups that wait to be written; the failures of further ones are not described. So messages that are all different,
which no mask makes equal, cost neither time nor space."""

MAX_REMEMBERED: Final = 2_000
"""Groups that a process remembers as written."""


class RecentFingerprints:
    """The fingerprints of the last hour, of which the oldest are forgotten if they are too many."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._since: dict[str, float] = {}

    def has(self, fingerprint: str) -> bool:
        """Whether a fingerprint was added in the last hour."""
        since = self._since.get(fingerprint)
        return since is not None and ticks() - since < DESCRIBE_AGAIN_SECONDS

    def add(self, fingerprint: str) -> None:
        """Remember a fingerprint from now on."""
        self.discard(fingerprint)
        self._since[fingerprint] = ticks()
        if len(self._since) > MAX_REMEMBERED:
            del self._since[next(iter(self._since))]

    def discard(self, fingerprint: str) -> None:
        """Forget a fingerprint."""
        self._since.pop(fingerprint, None)


class FailureGroups:
    """Takes failures, and writes a description of each group."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Write to a store, in the running event loop."""
        self._store = store
        self._clock = clock
        self._recent = RecentFingerprints()
        self._pending: list[FailureGroup] = []
        self._is_pending = asyncio.Event()

    def is_new(self, failure: Failure) -> bool:
        """Return whether the group of a failure is to be described, for which its full traceback is needed."""
        return len(self._pending) < MAX_PENDING and not self._recent.has(fingerprint_of(failure).id)

    def add(self, cause: Cause, failure: Failure) -> None:
        """Take a failure that was settled with this cause."""
        if self._recent.has(cause.fingerprint) or len(self._pending) >= MAX_PENDING:
            return
        group, now = fingerprint_of(failure), self._clock.now()
        if group.id != cause.fingerprint:
            # The decision itself failed, and the cause is that of its error.
            return
        if failure.traceback and not failure.full_traceback:
            # It was not wanted when the task failed. The next failure has it; the store would keep the short one.
            return
        self._recent.add(group.id)
        self._pending.append(
            FailureGroup(
                fingerprint=group.id,
                template=redact(group.template),
                type=cause.type,
                traceback=last_lines(failure.full_traceback, MAX_FAILURE_BYTES),
                first_seen_at=now,
                last_seen_at=now,
            )
        )
        self._is_pending.set()

    async def run(self) -> AsyncIterator[None]:
        """Write what was taken, until cancelled; yields after every write."""
        while True:
            await self._is_pending.wait()
            await self.write()
            yield
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)

    async def write(self) -> None:
        """Write what was taken. What cannot be written is dropped, and taken again with the next failure."""
        self._is_pending.clear()
        pending, self._pending = self._pending, []
        try:
            if pending:
                await self._store.describe_failures(pending)
        except StoreError:
            for group in pending:
                self._recent.discard(group.fingerprint)
