"""Claims: a session's calls to the store, counted, and each repeated until it is answered."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.clock import Clock
from reprieve.core.change import Change
from reprieve.errors import StoreError, StoreFull, StoreReadOnly
from reprieve.stores.protocol import Claim, Claimed, Store
from reprieve.worker.persist import Outage, Patience


class Claims:
    """Makes the claims of one session. Only one is under way at a time, so none is forgotten."""

    def __init__(self, store: Store, clock: Clock, session: str, outage: Outage | None = None) -> None:
        """Begin to count; `outage` is what the process says of a store that is away."""
        self._outage = outage
        self._store = store
        self._clock = clock
        self._session = session
        self._number = 0

    async def make(self, queues: Sequence[str], limit: int, changes: Sequence[Change]) -> Claimed:
        """Settle what has ended and ask for more, in one call, however long the store is away."""
        self._number += 1
        claim = Claim(
            session=self._session, number=self._number, now=0, queues=tuple(queues), limit=limit, changes=tuple(changes)
        )
        patience = Patience("claiming", self._outage)
        while True:
            try:
                await self._clock.tune()
                claimed = await self._store.claim(replace(claim, now=self._clock.now()))
            except StoreError as error:
                if not (error.is_passing or isinstance(error, StoreFull | StoreReadOnly)):
                    # Nobody mends these while we wait.
                    raise
                await patience.wait(error)
            else:
                patience.end()
                return claimed
