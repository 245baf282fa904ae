"""Regulations as the columns that SQL stores keep them in, and gauges from their rows."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Meter, Rate, carry
from reprieve.stores.protocol import Gauge, Regulation, Subject

_PAUSES: Final = {"schedule": 1, "retry": 2}


def columns_of(regulation: Regulation) -> dict[str, object]:
    """Answer what a regulation sets, and whether it does."""
    rate = None if regulation.rate is UNSET else regulation.rate
    return {
        "sets_permits": regulation.permits is not UNSET,
        "permits": None if regulation.permits is UNSET else regulation.permits,
        "sets_max_running": regulation.max_running is not UNSET,
        "max_running": None if regulation.max_running is UNSET else regulation.max_running,
        "sets_rate": regulation.rate is not UNSET,
        "rate_count": None if rate is None else rate.count,
        "rate_window": None if rate is None else rate.window,
    }


def bits_of(pauses: Iterable[str]) -> int:
    """Answer pauses as a number."""
    return sum(_PAUSES[pause] for pause in set(pauses))


def carried(row: tuple[int | None, float | None, str] | None, regulation: Regulation, now: int) -> str:
    """Answer the meter under the new rate: setting a rate again does not forget what was granted."""
    old = _rate(row[0], row[1]) if row else None
    new = None if regulation.rate is UNSET else regulation.rate
    if row is None or old is None or new is None:
        return "[]"
    meter = msgspec.json.decode(row[2], type=Meter)
    return msgspec.json.encode(carry(old, meter, new, now)).decode()


def tenants_of(rows: Iterable[tuple[Any, ...]]) -> list[Gauge]:
    """Answer the gauges of tenants."""
    return [
        Gauge(
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


def gates_of(subject: Subject, queue: str, rows: Iterable[tuple[Any, ...]]) -> list[Gauge]:
    """Answer the gauges of everything else; of queues, only the one that is named."""
    return [
        Gauge(
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
