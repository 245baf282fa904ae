"""The claims of a session: each settles what has ended and fetches more, and is repeated until the store replies."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.clock import Clock, ticks
from reprieve.core.change import Change
from reprieve.errors import SessionDead, StoreError, StoreFull, StoreReadOnly
from reprieve.stores.protocol import Claim, Claimed, Store
from reprieve.worker.job_logging import log_refused
from reprieve.worker.prefetch import ClaimTime
from reprieve.worker.supervised_loop import LoopBackoff, Outage


class SessionClaims:
    """Makes the claims of one session, one at a time, and numbers them: the store recognises a repeated claim."""

    def __init__(self, store: Store, clock: Clock, session: str, outage: Outage | None = None) -> None:
        """Begin to number the claims; `outage` is shared with the other loops of the process."""
        self._outage = outage
        self._store = store
        self._clock = clock
        self._session = session
        self._number = 0
        self.time = ClaimTime()
        """How long claims take."""

    async def claim(self, queues: Sequence[str], limit: int, changes: Sequence[Change]) -> Claimed:
        """Settle changes and lease up to `limit` jobs, in one call, however long the store is away.

        A change that the store refuses is logged. Raises `SessionDead`, and any other error that does not pass.
        """
        try:
            claimed = await self._claim(queues, limit, tuple(changes))
        except SessionDead:
            for change in changes:
                log_refused(change, "refused")
            raise
        for change, result in zip(changes, claimed.results, strict=True):
            if result in ("refused", "missing"):
                log_refused(change, result)
        return claimed

    async def _claim(self, queues: Sequence[str], limit: int, changes: tuple[Change, ...]) -> Claimed:
        self._number += 1
        claim = Claim(
            session=self._session, number=self._number, now=0, queues=tuple(queues), limit=limit, changes=changes
        )
        backoff = LoopBackoff("claiming", self._outage)
        while True:
            try:
                await self._clock.tune()
                began = ticks()
                claimed = await self._store.claim(replace(claim, now=self._clock.now()))
            except StoreError as error:
                if not (error.is_passing or isinstance(error, StoreFull | StoreReadOnly)):
                    # Not transient.
                    raise
                await backoff.wait(error)
            else:
                self.time.add(ticks() - began)
                backoff.succeed()
                return claimed
