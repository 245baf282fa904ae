"""Limit states, from the packed states of queues, tenants and limiters."""

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import msgspec

from reprieve.core.rate import Rate
from reprieve.stores.protocol import LimitState, Subject

_NUMBER: Final = Struct(">d")
_ROUND: Final = 1_000_000
_LETTERS: Final[dict[Subject, bytes]] = {"queue": b"q", "task": b"k", "dependency": b"d", "group": b"g"}
_PAUSES: Final = (("schedule", 1), ("retry", 2))
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def number_of(data: bytes) -> float:
    """Read a number of 8 bytes."""
    (number,) = _NUMBER.unpack(data)
    return float(number)


def version_of(entry: bytes) -> int:
    """Read the version of a packed entry."""
    return int(number_of(entry[:8]))


def _limits(fields: list[Any]) -> dict[str, Any]:
    permits, max_running, count, window = (*fields, None, None, None, None)[:4]
    return {
        "permits": None if permits is False else permits,
        "max_running": None if max_running is False else max_running,
        "rate": Rate(count=count, window=window) if count else None,
    }


def tenants(packed: Mapping[bytes, bytes], queues: Mapping[bytes, bytes], only: str) -> list[LimitState]:
    """Return the limit states of tenants, of one queue or of all."""
    turns = {name: _decode(data) for name, data in queues.items()}
    found: list[LimitState] = []
    for key, data in packed.items():
        queue, _, name = key.partition(b"\0")
        if only and queue.decode() != only:
            continue
        weight, running, finish, served, served_at, _, _, _, *limits = _decode(data)
        clock, last, streak = turns.get(queue, [0, "", 0])[:3]
        found.append(
            LimitState(
                subject="tenant",
                name=name.decode(),
                queue=queue.decode(),
                running=running,
                weight=float(weight),
                served=served,
                served_at=None if served_at is False else int(served_at),
                streak=streak if last == name.decode() else 0,
                rounds=max(0, int((clock - finish) // _ROUND)),
                **_limits(limits),
            )
        )
    return sorted(found, key=lambda limit_state: (limit_state.queue, limit_state.name))


def limiters(
    subject: Subject, packed: Mapping[bytes, bytes], queues: Mapping[bytes, bytes], only: str
) -> list[LimitState]:
    """Return the limit states of queues, tasks, dependencies or groups."""
    letter = _LETTERS[subject]
    states = {key[1:]: _decode(data) for key, data in packed.items() if key[:1] == letter}
    if subject == "queue":
        # A queue that nothing runs in and nothing limits has no limiter, but is one all the same.
        states = {name: [0, 0] for name in queues} | states
    found: list[LimitState] = []
    for name, (running, _, *limits) in states.items():
        pauses = _decode(queues[name])[5] if subject == "queue" and name in queues else 0
        if subject != "queue" or only in ("", name.decode()):
            found.append(
                LimitState(
                    subject=subject,
                    name=name.decode(),
                    running=running,
                    pauses=tuple(word for word, bit in _PAUSES if pauses & bit),
                    **_limits(limits),
                )
            )
    return sorted(found, key=lambda limit_state: limit_state.name)


def held(packed: Mapping[bytes, bytes]) -> frozenset[str]:
    """Return the limiters that let nothing through, by letter and name."""
    states = {key.decode(): _decode(data) for key, data in packed.items()}
    return frozenset(key for key, (_, _, *limits) in states.items() if _limits(limits)["permits"] == 0)
