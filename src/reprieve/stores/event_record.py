"""Packed events as stores read them: one that cannot be read is left out, counted and logged."""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from reprieve.core.events import Event

log = logging.getLogger("reprieve")

MAX_REPORTED: Final = 10_000
"""Positions of unreadable events that a process remembers as logged: a reader that follows events meets them again."""

_decode = msgspec.msgpack.Decoder(Event).decode
_reported: Final[set[int]] = set()


def read_event(data: bytes) -> Event | None:
    """Return a packed event; None if it cannot be read."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return None


def readable_events(events: Iterable[tuple[int, Event | None]]) -> list[tuple[int, Event]]:
    """Return the events that could be read, each with its position; log once how many could not."""
    readable: list[tuple[int, Event]] = []
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
