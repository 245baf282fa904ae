"""The claims of a session: each settles what has ended and fetches more, and is repeated until the store replies."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from reprieve.clock import Clock, ticks
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.series import SeriesDelta
from reprieve.errors import SessionDead, StoreError, StoreFull, StoreReadOnly, UnsafeStore
from reprieve.stores.protocol import Claim, Claimed, Filter, Store
from reprieve.worker.attempt_counts import AttemptCounts
from reprieve.worker.job_logging import log_refused
from reprieve.worker.prefetch import ClaimTime
from reprieve.worker.settlement import Settlement
from reprieve.worker.supervised_loop import LoopBackoff, Outage
from reprieve.worker.unknown_tasks import UnknownTasks

T = TypeVar("T")

_CORRECTABLE = (StoreFull, StoreReadOnly, UnsafeStore)
"""Errors that a person corrects while the worker waits with what it has to settle."""


class SessionClaims:
    """Makes the claims of one session, one at a time, and numbers them: the store recognises a repeated claim."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a worker that a claim touches
        self,
        store: Store,
        clock: Clock,
        session: str,
        settlement: Settlement,
        unknown_tasks: UnknownTasks,
        counts: AttemptCounts,
        outage: Outage | None = None,
    ) -> None:
        """Begin to number the claims; `outage` is shared with the other loops of the process.

        `settlement` settles as failed what the store cannot write. Claims exclude the unknown tasks, and hand over what
        was counted, every few seconds.
        """
        self._counts = counts
        self._settlement = settlement
        self._unknown_tasks = unknown_tasks
        self._outage = outage
        self._store = store
        self._clock = clock
        self._session = session
        self._number = 0
        self._starts: tuple[Job, ...] = ()
        """Jobs that tell all, of the last claims, whose starts the next claim tells."""
        self.time = ClaimTime()
        """How long claims take."""

    async def claim(self, queues: Sequence[str], limit: int, changes: Sequence[Change]) -> Claimed:
        """Settle changes and lease up to `limit` jobs, in one call, however long the store is away.

        A change that comes too late is refused and logged. If the session still holds its job, the store cannot write
        the change, and the attempt is settled as failed. Raises `SessionDead`, and any other error that does not pass.
        """
        try:
            claimed = await self._claim(queues, limit, tuple(changes))
            refused = [change for change, result in zip(changes, claimed.results, strict=True) if result == "refused"]
            if refused:
                # Jobs of this very claim are held by its leases, whatever their versions.
                await self._settle_refused(refused, {job.id for job in claimed.jobs})
        except SessionDead:
            for change in changes:
                log_refused(change, "refused")
            raise
        for change, result in zip(changes, claimed.results, strict=True):
            if result == "missing":
                log_refused(change, result)
        return claimed

    async def _settle_refused(self, refused: Sequence[Change], leased: set[str]) -> None:
        """Settle as failed what the store refused although the session held its job; log what came too late.

        `leased` are the jobs that the same claim leased.
        """
        ids = tuple(change.job.id for change in refused)
        page = await self._insist(lambda: self._store.find(Filter(ids=ids), self._clock.now()))
        held = {job.id: job for job in page.jobs if job.state == "running" and job.session == self._session}
        failures = []
        for change in refused:
            job = held.pop(change.job.id, None)
            if job is None or job.id in leased or job.version != change.version:
                log_refused(change, "refused")
            else:
                failures.append(self._settlement.fail(change, job))
        if failures:
            claimed = await self._claim((), 0, tuple(failures))
            for change, result in zip(failures, claimed.results, strict=True):
                if result != "applied":
                    log_refused(change, result)

    async def hand_over_counts(self) -> None:
        """Make a claim that only hands over what was counted and the starts that were not told, if there are any."""
        if self._counts or self._starts:
            await self._claim((), 0, (), self._counts.take())

    async def _claim(
        self, queues: Sequence[str], limit: int, changes: tuple[Change, ...], series: tuple[SeriesDelta, ...] = ()
    ) -> Claimed:
        self._number += 1
        claim = Claim(
            session=self._session,
            number=self._number,
            now=0,
            queues=tuple(queues),
            limit=limit,
            changes=changes,
            exclude=self._unknown_tasks.exclude,
            series=self._counts.take() if self._counts.is_due() else series,
            starts=self._starts,
        )
        self._starts = ()

        async def call() -> Claimed:
            began = ticks()
            claimed = await self._store.claim(replace(claim, now=self._clock.now()))
            self.time.add(ticks() - began)
            return claimed

        claimed = await self._insist(call)
        self._starts = tuple([job for job in claimed.jobs if job.headers is not None and job.headers.tells_all])
        return claimed

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, and repeat it for as long as the store is away."""
        backoff = LoopBackoff("claiming", self._outage)
        while True:
            try:
                await self._clock.tune()
                result = await call()
            except StoreError as error:
                if not (error.is_passing or isinstance(error, _CORRECTABLE)):
                    # Not transient.
                    raise
                await backoff.wait(error)
            else:
                backoff.succeed()
                return result
