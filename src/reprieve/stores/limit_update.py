"""Limit updates as the columns that SQL stores keep them in, and limit states from their rows."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Meter, Rate, carry
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject

_PAUSES: Final = {"schedule": 1, "retry": 2}


def columns_of(update: LimitUpdate) -> dict[str, object]:
    """Return what a update sets, and whether it does."""
    rate = None if update.rate is UNSET else update.rate
    return {
        "sets_permits": update.permits is not UNSET,
        "permits": None if update.permits is UNSET else update.permits,
        "sets_max_running": update.max_running is not UNSET,
        "max_running": None if update.max_running is UNSET else update.max_running,
        "sets_rate": update.rate is not UNSET,
        "rate_count": None if rate is None else rate.count,
        "rate_window": None if rate is None else rate.window,
    }


def bits_of(pauses: Iterable[str]) -> int:
    """Return pauses as a number."""
    return sum(_PAUSES[pause] for pause in set(pauses))


def carried(row: tuple[int | None, float | None, str] | None, update: LimitUpdate, now: int) -> str:
    """Return the meter under the new rate: setting a rate again does not forget what was granted."""
    old = _rate(row[0], row[1]) if row else None
    new = None if update.rate is UNSET else update.rate
    if row is None or old is None or new is None:
        return "[]"
    meter = msgspec.json.decode(row[2], type=Meter)
    return msgspec.json.encode(carry(old, meter, new, now)).decode()


def tenants_of(rows: Iterable[tuple[Any, ...]]) -> list[LimitState]:
    """Return the limit states of tenants."""
    return [
        LimitState(
            subject="tenant",
            name=name,
            queue=queue,
            running=running,
            permits=permits,
            max_running=max_running,
            rate=_rate(count, window),
            weight=weight,
            served=served,
            served_at=served_at,
            streak=streak,
            rounds=rounds,
        )
        for (
            name,
            queue,
            running,
            permits,
            max_running,
            count,
            window,
            weight,
            served,
            served_at,
            streak,
            rounds,
        ) in rows
    ]


def limiters_of(subject: Subject, queue: str, rows: Iterable[tuple[Any, ...]]) -> list[LimitState]:
    """Return the limit states of everything else; of queues, only the one that is named."""
    return [
        LimitState(
            subject=subject,
            name=name,
            running=running,
            permits=permits,
            max_running=max_running,
            rate=_rate(count, window),
            pauses=tuple(pause for pause, bit in _PAUSES.items() if pauses & bit),
        )
        for name, running, permits, max_running, count, window, pauses in rows
        if subject != "queue" or queue in ("", name)
    ]


def _rate(count: int | None, window: float | None) -> Rate | None:
    return None if count is None or window is None else Rate(count=count, window=window)
