"""Limit states and entries, from what scripts store of queues, tenants, limiters and entries."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from reprieve.core.fairness.candidates import ROUND
from reprieve.core.rate import Rate
from reprieve.stores.entry_cursor import EntryCursor, has_expired
from reprieve.stores.limit_fields import OWN_BITS, own_fields, pauses_of
from reprieve.stores.protocol import Entry, EntryChanges, EntryDeletion, LimitState, Subject
from reprieve.stores.redis.limit_defaults import Defaults, Maybe, number_of, rate_of
from reprieve.stores.redis.limit_updates import SUBJECT_LETTERS
from reprieve.stores.redis.replies import rows

_ENTRY_HEAD: Final = Struct(">d8sd")


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

    weight: float = 1.0
    running: int = 0
    finish: float = 0
    served: int = 0
    served_at: Maybe = False
    open_lanes: int = 0
    only_lane: str | bool = False
    blocked: int = 0
    lane_count: int = 0
    permits: Maybe = False
    max_running: Maybe = False
    count: Maybe = False
    window: Maybe = False
    bucket: Maybe = False
    meter: list[float] | bool = False
    own: int = 0


class LimiterState(msgspec.Struct, array_like=True, frozen=True):
    """A limiter, as `flush_limiters` stores it."""

    running: int = 0
    blocked_tenants: int = 0
    permits: Maybe = False
    max_running: Maybe = False
    count: Maybe = False
    window: Maybe = False
    bucket: Maybe = False
    meter: list[float] | bool = False
    own: int = 0


class LaneState(msgspec.Struct, array_like=True, frozen=True):
    """A lane, as `flush_lanes` stores it; the rest is not needed here."""

    ready: int


class ChangedEntry(NamedTuple):
    """An entry that was changed, as `entry_changes.lua` replies it."""

    key: bytes
    number: int
    """Of the last change."""
    data: bytes
    """Empty if it was deleted."""


decode_lane = msgspec.msgpack.Decoder(LaneState).decode
_decode_queue = msgspec.msgpack.Decoder(QueueState).decode
_decode_tenant = msgspec.msgpack.Decoder(TenantState).decode
_decode_limiter = msgspec.msgpack.Decoder(LimiterState).decode


def unpack_entry(key: bytes, data: bytes) -> Entry:
    """Return an entry: its version, the write that set it, and when it expires stand before its value."""
    version, _, expires_at = _ENTRY_HEAD.unpack_from(data)
    value = data[_ENTRY_HEAD.size :]
    return Entry(key=key.decode(), version=int(version), value=value, expires_at=int(expires_at) or None)


def entry_changes(reply: Sequence[Any], prefix: str, now: int) -> EntryChanges:
    """Return what `entry_changes.lua` replies of entries under a prefix, each as it is now."""
    _, number, stamp, *found = reply
    changed = [one for one in rows(ChangedEntry, found) if one.key.decode().startswith(prefix)]
    now_set = [unpack_entry(one.key, one.data) for one in changed if one.data]
    kept = {entry.key: entry for entry in now_set if not has_expired(entry, now)}
    gone = [one for one in changed if one.key.decode() not in kept]
    return EntryChanges(
        entries=tuple(kept.values()),
        deleted=tuple(EntryDeletion(key=one.key.decode(), version=one.number) for one in gone),
        version=number,
        cursor=str(EntryCursor(number, int.from_bytes(stamp, "big"))),
    )


class _Limits(NamedTuple):
    """The limits of a name, its own and those of the default."""

    permits: int | None
    max_running: int | None
    rate: Rate | None


def _limits(state: TenantState | LimiterState, subject: Subject, scope: str, defaults: Defaults) -> _Limits:
    """Return the limits that hold for a name."""
    own = own_fields(state.own)
    default = {field: state if field in own else defaults.of(subject, scope, field) for field in OWN_BITS}
    rate = default["rate"]
    return _Limits(
        number_of(default["permits"].permits),
        number_of(default["max_running"].max_running),
        rate_of(rate.count, rate.window),
    )


def tenant(field: str, packed: bytes | None, queues: Mapping[bytes, bytes], defaults: Defaults) -> LimitState:
    """Return the limit state of a tenant; one without limits of its own if nothing is stored of it."""
    queue, _, name = field.partition("\0")
    state = TenantState() if packed is None else _decode_tenant(packed)
    queue_state = _decode_queue(queues[queue.encode()]) if queue.encode() in queues else QueueState()
    return LimitState(
        subject="tenant",
        name=name,
        queue=queue,
        own=own_fields(state.own),
        running=state.running,
        weight=state.weight,
        served=state.served,
        served_at=number_of(state.served_at),
        streak=queue_state.in_a_row if queue_state.last_tenant == name else 0,
        rounds=max(0, int((queue_state.clock - state.finish) // ROUND)),
        **_limits(state, "tenant", queue, defaults)._asdict(),
    )


def limiter(
    subject: Subject, field: str, packed: bytes | None, queues: Mapping[bytes, bytes], defaults: Defaults
) -> LimitState:
    """Return the limit state of anything but a tenant; one without limits of its own if nothing is stored of it."""
    _, name, dependency = key_of(subject, field)
    state = LimiterState() if packed is None else _decode_limiter(packed)
    pauses = 0
    if subject == "queue":
        stored = _decode_queue(queues[name.encode()]) if name.encode() in queues else QueueState()
        has_own = state.own & OWN_BITS["pauses"]
        pauses = stored.pauses if has_own else defaults.of("queue", "", "pauses").pauses
    return LimitState(
        subject=subject,
        name=name,
        dependency=dependency,
        own=own_fields(state.own),
        running=state.running,
        pauses=pauses_of(pauses),
        **_limits(state, subject, dependency, defaults)._asdict(),
    )


def field_of(subject: Subject, key: tuple[str, str, str]) -> str:
    """Return the field of a name, by its queue, its name and its dependency, in the hash of tenants or limiters."""
    queue, name, dependency = key
    if subject == "tenant":
        return f"{queue}\0{name}"
    return SUBJECT_LETTERS[subject] + name + (f"\0{dependency}" if subject == "tenant_dependency" else "")


def key_of(subject: Subject, field: str) -> tuple[str, str, str]:
    """Return the queue, the name and the dependency of a field."""
    first, _, second = (field if subject == "tenant" else field[1:]).partition("\0")
    return (first, second, "") if subject == "tenant" else ("", first, second)


class Held:
    """Which limiters let nothing through."""

    def __init__(self, packed: Mapping[bytes, bytes], defaults: Defaults) -> None:
        """Take the limiters and the defaults."""
        states = {key.decode(): _decode_limiter(data) for key, data in packed.items()}
        owns = {
            name: number_of(state.permits) == 0 for name, state in states.items() if state.own & OWN_BITS["permits"]
        }
        self._own = owns
        self._defaults = defaults

    @property
    def has_any(self) -> bool:
        """Whether there is a limiter that lets nothing through."""
        return any(self._own.values()) or any(update.permits == 0 for update in self._defaults.updates())

    def has(self, subject: Subject, name: str, scope: str = "") -> bool:
        """Return whether the limiter of a subject lets nothing through; `scope` is the dependency of a pair."""
        field = SUBJECT_LETTERS[subject] + name + (f"\0{scope}" if scope else "")
        own = self._own.get(field)
        return number_of(self._defaults.of(subject, scope, "permits").permits) == 0 if own is None else own
