"""Sessions in SQL tables: their queues as JSON, and how they are read."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from reprieve.core.fairness.candidates import Capacity
from reprieve.stores.protocol import Session
from reprieve.stores.session_record import LastHeartbeat, session_of
from reprieve.stores.sql.tx import SqlTx, Statements


class Offer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the live sessions that serve the same queues run at once, and fetch ahead."""

    queues: str
    """As their column has them."""
    slots: int
    prefetch: int


_ALL_QUEUES = "[]"
_decode_offers = msgspec.json.Decoder(list[Offer]).decode
_encode = msgspec.json.Encoder().encode
decode_queues = msgspec.json.Decoder(tuple[str, ...]).decode
"""Return the queues of a session from their column."""


def encode_queues(queues: Sequence[str]) -> str:
    """Return the queues of a session as their column keeps them."""
    return _encode(queues).decode()


def capacity_of(offers: str, queue: str) -> Capacity:
    """Return the slots and the prefetch of the live sessions that serve a queue.

    `offers` is a JSON array with the queues, the slots and the prefetch of sessions that serve the same queues.
    """
    slots = prefetch = 0
    for offer in _decode_offers(offers):
        if offer.queues == _ALL_QUEUES or queue in _set_of(offer.queues):
            slots += offer.slots
            prefetch += offer.prefetch
    return Capacity(slots, prefetch)


@lru_cache(maxsize=256)
def _set_of(queues: str) -> frozenset[str]:
    return frozenset(decode_queues(queues))


def read_sessions(tx: SqlTx, sql: Statements, now: int) -> list[Session]:
    """Return the sessions whose lease lasts, by name."""
    return [
        session_of(name, LastHeartbeat(heartbeat_at, slots, prefetch, running, decode_queues(queues)), origin)
        for name, heartbeat_at, slots, prefetch, running, queues, origin in tx.all(sql["read"], {"now": now})
    ]
