"""The packed record of an event, the same in every store; one that cannot be read is left out, counted and logged.

What a search compares comes first: a reader that looks for other events need not decode the rest. The fields of moves
and causes are written in the order of their declaration, up to the last one that differs from its default: a new field
of a move or of `Cause` comes last, and none changes its place.
"""

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from reprieve.core.events import Event, enqueued, name_of, started
from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Cause, Job
from reprieve.core.move import (
    Cancel,
    Dead,
    Enqueue,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
)
from reprieve.core.notice import Fact, Notice, NoticeName

log = logging.getLogger("reprieve")

MAX_REPORTED: Final = 10_000
"""Positions of unreadable events that a process remembers as logged: a reader that follows events meets them again."""

_MOVES: Final[tuple[type[Move | Enqueue], ...]] = (
    Start,
    Succeed,
    Retry,
    Park,
    Dead,
    Snooze,
    Return,
    Cancel,
    ManualRetry,
    Revive,
    Enqueue,
)
"""The moves by the numbers that records know them by: a new one comes last."""

_NUMBERS: Final = {move: number for number, move in enumerate(_MOVES)}
_CAUSED: Final = (Retry, Park, Dead)


class PackedEvent(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """A record. The tag is the kind of the record: an event of one job."""

    queue: str
    tenant: str
    task: str
    move: int
    attempt: int
    job_id: bytes
    at: int
    version: int
    session: str
    ran_ms: int | None
    """How long the lease had lasted that the move ended; None if the job was not running."""
    fields: list[Any]
    """Those of the move; its cause is such a list as well."""


class PackedNotice(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """A record of something that happened to no job."""

    queue: str
    tenant: str
    name: NoticeName
    at: int
    kind: str
    subject: str
    by: str
    reason: str
    facts: dict[str, Fact]


class NoticeHead(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """The first fields of such a record."""

    queue: str
    tenant: str
    name: NoticeName


class EventHead(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """What a search compares: the first fields of a record."""

    queue: str
    tenant: str
    task: str
    move: int
    attempt: int

    @property
    def name(self) -> str:
        """The public name of the event."""
        return name_of(_MOVES[self.move], self.attempt)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PackedEvent | PackedNotice).decode
_decode_head = msgspec.msgpack.Decoder(EventHead | NoticeHead).decode
_reported: Final[set[int]] = set()


def pack_event(event: Event) -> bytes:
    """Return the record of an event."""
    move = event.move
    fields = _values(move)
    if isinstance(move, _CAUSED):
        fields[_place_of_cause(type(move))] = _values(move.cause)
    ran_ms = None if event.started_at is None else event.at - event.started_at
    names = (event.queue, event.tenant, event.task, _NUMBERS[type(move)], event.attempt)
    return _encode((0, *names, id_to_bytes(event.job_id), event.at, event.version, event.session, ran_ms, fields))


def pack_enqueued(job: Job) -> bytes:
    """Return the record of the event of a job's enqueue."""
    return pack_event(enqueued(job))


def pack_started(job: Job) -> bytes:
    """Return the record of the event of the start of a job that runs."""
    return pack_event(started(job))


def pack_notice(notice: Notice) -> bytes:
    """Return the record of a notice."""
    names = (notice.queue, notice.tenant, notice.name, notice.at, notice.kind, notice.subject)
    return _encode((1, *names, notice.by, notice.reason, notice.facts))


def head_of(data: bytes) -> EventHead | NoticeHead | None:
    """Return the first fields of a record, ten times as fast as all of them; None if they cannot be read."""
    try:
        head = _decode_head(data)
    except msgspec.MsgspecError:
        return None
    return None if isinstance(head, EventHead) and not 0 <= head.move < len(_MOVES) else head


def read_event(data: bytes) -> Event | None:
    """Return the event of a record; None if it cannot be read."""
    told = read_told(data)
    return told if isinstance(told, Event) else None


def read_told(data: bytes) -> Event | Notice | None:
    """Return the event or the notice of a record; None if it cannot be read."""
    try:
        packed = _decode(data)
        if isinstance(packed, PackedNotice):
            return Notice(**msgspec.structs.asdict(packed))
        return Event(
            job_id=id_from_bytes(packed.job_id),
            at=packed.at,
            attempt=packed.attempt,
            version=packed.version,
            move=_move(_MOVES[packed.move], packed.fields),
            session=packed.session,
            started_at=None if packed.ran_ms is None else packed.at - packed.ran_ms,
            queue=packed.queue,
            tenant=packed.tenant,
            task=packed.task,
        )
    except (msgspec.MsgspecError, IndexError, TypeError):
        return None


def _values(record: Move | Enqueue | Cause) -> list[object]:
    """Return the fields of a record up to the last one that differs from its default."""
    values, defaults = list(astuple(record)), _defaults(type(record))
    while values and values[-1] == defaults[len(values) - 1]:
        values.pop()
    return values


def _move(kind: type[Move | Enqueue], values: list[Any]) -> Move | Enqueue:
    fields = _named(kind, values)
    if issubclass(kind, _CAUSED):
        fields["cause"] = _named(Cause, fields["cause"])
    return msgspec.convert(fields, kind)


def _named(kind: type[Move | Enqueue | Cause], values: list[Any]) -> dict[str, Any]:
    return dict(zip(kind.__struct_encode_fields__, values, strict=False)) | _tag(kind)


@cache
def _defaults(kind: type[Move | Enqueue | Cause]) -> tuple[object, ...]:
    """Return the default of each field; one that must be given has a default that no value equals."""
    return tuple(field.default for field in msgspec.structs.fields(kind))


@cache
def _place_of_cause(kind: type[Move]) -> int:
    return kind.__struct_fields__.index("cause")


@cache
def _tag(kind: type[Move | Enqueue | Cause]) -> dict[str, str]:
    return {"type": kind.__name__} if kind is not Cause else {}


def readable_events(events: Iterable[tuple[int, Event | Notice | None]]) -> list[tuple[int, Event | Notice]]:
    """Return the events that could be read, each with its position; log once how many could not."""
    readable: list[tuple[int, Event | Notice]] = []
    lost: list[int] = []
    for position, event in events:
        if event is not None:
            readable.append((position, event))
        elif position not in _reported:
            lost.append(position)
    if lost:
        if len(_reported) > MAX_REPORTED:
            _reported.clear()
        _reported.update(lost)
        log.warning(
            "%d events cannot be read and are left out, at positions %d to %d: they are damaged, or another release "
            "wrote them",
            len(lost),
            lost[0],
            lost[-1],
        )
    return readable
