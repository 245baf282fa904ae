"""Limit states and entries, from what scripts store of queues, tenants, limiters and entries."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from reprieve.core.fairness.candidates import ROUND
from reprieve.core.rate import Rate
from reprieve.stores.entry_cursor import EntryCursor
from reprieve.stores.protocol import Entry, EntryChanges, EntryDeletion, LimitState, Subject
from reprieve.stores.redis.limit_updates import PAUSE_BITS, SUBJECT_LETTERS
from reprieve.stores.redis.replies import rows

_VERSION: Final = Struct(">d")
_ENTRY_HEAD_BYTES: Final = 16

Maybe: TypeAlias = int | bool
"""A number, or False for none."""


class QueueState(msgspec.Struct, array_like=True, frozen=True):
    """A queue, as `flush_queues` stores it; the rest is not needed here."""

    clock: float = 0
    last_tenant: str = ""
    in_a_row: int = 0
    last_served_at: float = 0
    other_served_at: float = 0
    pauses: int = 0


class TenantState(msgspec.Struct, array_like=True, frozen=True):
    """A tenant, as `flush_tenants` stores it."""

    weight: float
    running: int
    finish: float
    served: int
    served_at: Maybe
    open_lanes: int
    only_lane: str | bool
    blocked: int
    permits: Maybe = False
    max_running: Maybe = False
    count: Maybe = False
    window: Maybe = False


class LimiterState(msgspec.Struct, array_like=True, frozen=True):
    """A limiter, as `flush_limiters` stores it."""

    running: int = 0
    blocked_tenants: int = 0
    permits: Maybe = False
    max_running: Maybe = False
    count: Maybe = False
    window: Maybe = False


class ChangedEntry(NamedTuple):
    """An entry that was changed, as `entry_changes.lua` replies it."""

    key: bytes
    number: int
    """Of the last change."""
    data: bytes
    """Empty if it was deleted."""


_decode_queue = msgspec.msgpack.Decoder(QueueState).decode
_decode_tenant = msgspec.msgpack.Decoder(TenantState).decode
_decode_limiter = msgspec.msgpack.Decoder(LimiterState).decode


def unpack_entry(key: bytes, data: bytes) -> Entry:
    """Return an entry: its version and the call that set it stand before its value."""
    (version,) = _VERSION.unpack_from(data)
    return Entry(key=key.decode(), version=int(version), value=data[_ENTRY_HEAD_BYTES:])


def entry_changes(reply: Sequence[Any], prefix: str) -> EntryChanges:
    """Return what `entry_changes.lua` replies of entries under a prefix, each as it is now."""
    _, number, stamp, *found = reply
    changed = [one for one in rows(ChangedEntry, found) if one.key.decode().startswith(prefix)]
    return EntryChanges(
        entries=tuple(unpack_entry(one.key, one.data) for one in changed if one.data),
        deleted=tuple(EntryDeletion(key=one.key.decode(), version=one.number) for one in changed if not one.data),
        version=number,
        cursor=str(EntryCursor(number, int.from_bytes(stamp, "big"))),
    )


def _number(stored: Maybe) -> int | None:
    return None if stored is False else int(stored)


def _rate(state: TenantState | LimiterState) -> Rate | None:
    return Rate(count=int(state.count), window=int(state.window)) if state.count else None


def tenants(packed: Mapping[bytes, bytes], queues: Mapping[bytes, bytes], only: str) -> list[LimitState]:
    """Return the limit states of tenants, of one queue or of all."""
    queue_states = {name: _decode_queue(data) for name, data in queues.items()}
    found: list[LimitState] = []
    for key, data in packed.items():
        queue, _, name = key.partition(b"\0")
        if only and queue.decode() != only:
            continue
        tenant, queue_state = _decode_tenant(data), queue_states.get(queue, QueueState())
        found.append(
            LimitState(
                subject="tenant",
                name=name.decode(),
                queue=queue.decode(),
                running=tenant.running,
                weight=tenant.weight,
                served=tenant.served,
                served_at=_number(tenant.served_at),
                streak=queue_state.in_a_row if queue_state.last_tenant == name.decode() else 0,
                rounds=max(0, int((queue_state.clock - tenant.finish) // ROUND)),
                permits=_number(tenant.permits),
                max_running=_number(tenant.max_running),
                rate=_rate(tenant),
            )
        )
    return sorted(found, key=lambda limit_state: (limit_state.queue, limit_state.name))


def limiters(
    subject: Subject, packed: Mapping[bytes, bytes], queues: Mapping[bytes, bytes], only: str
) -> list[LimitState]:
    """Return the limit states of any subject but tenants."""
    letter = SUBJECT_LETTERS[subject].encode()
    states = {key[1:]: _decode_limiter(data) for key, data in packed.items() if key[:1] == letter}
    if subject == "queue":
        # A queue without running jobs and limits has no limiter, but is listed all the same.
        states = {name: LimiterState() for name in queues} | states
    found: list[LimitState] = []
    for name, limiter in states.items():
        queue = _decode_queue(queues[name]) if subject == "queue" and name in queues else QueueState()
        if subject != "queue" or only in ("", name.decode()):
            found.append(
                LimitState(
                    subject=subject,
                    name=name.partition(b"\0")[0].decode(),
                    dependency=name.partition(b"\0")[2].decode(),
                    running=limiter.running,
                    pauses=tuple(pause for pause, bit in PAUSE_BITS.items() if queue.pauses & bit),
                    permits=_number(limiter.permits),
                    max_running=_number(limiter.max_running),
                    rate=_rate(limiter),
                )
            )
    return sorted(found, key=lambda limit_state: (limit_state.name, limit_state.dependency))


def held(packed: Mapping[bytes, bytes]) -> frozenset[str]:
    """Return the limiters that let nothing through, by letter and name."""
    return frozenset(key.decode() for key, data in packed.items() if _number(_decode_limiter(data).permits) == 0)
