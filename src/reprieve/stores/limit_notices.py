"""What the stream is told of limits and gates, the same in every store."""

from collections.abc import Sequence

from msgspec import UNSET

from reprieve.core.audit import Audit, Author
from reprieve.core.gate import Gate, Mode
from reprieve.core.notice import Fact, Notice, NoticeName
from reprieve.core.rate import Rate
from reprieve.stores.protocol import LimitUpdate

_GATE_NAMES: dict[Mode, NoticeName] = {"held": "GateHeld", "probing": "GateProbing", "open": "GateOpened"}


def limit_notices(updates: Sequence[LimitUpdate], now: int, author: Author) -> list[Notice]:
    """Return the notices of new limits, weights and pauses, one of each kind for each update."""
    return [notice for update in updates for notice in _notices(update, now, author)]


def gate_notices(before: Gate, after: Gate, now: int, author: Author) -> tuple[Notice, ...]:
    """Return the notice of a gate that has another mode; none if only its evidence has changed."""
    if before.mode == after.mode:
        return ()
    by, reason = _person(author)
    facts: dict[str, Fact] = {"before": before.mode, "down_at": after.down_at, "ramp": after.ramp}
    notice = Notice(
        at=now,
        name=_GATE_NAMES[after.mode],
        kind="dependency",
        subject=after.dependency,
        by=by,
        reason=reason,
        facts=facts,
    )
    return (notice,)


def _notices(update: LimitUpdate, now: int, author: Author) -> list[Notice]:
    by, reason = _person(author)
    told: list[tuple[NoticeName, dict[str, Fact]]] = []
    if update.pauses is not UNSET:
        is_paused = update.pauses not in ((), "default")
        pauses = update.pauses if isinstance(update.pauses, str) else ", ".join(update.pauses)
        told.append(("QueuePaused" if is_paused else "QueueResumed", {"pauses": pauses}))
    if update.weight is not UNSET:
        told.append(("WeightChanged", {"weight": update.weight}))
    limits: dict[str, Fact] = {}
    for name in ("permits", "max_running"):
        if (value := getattr(update, name)) is not UNSET:
            limits[name] = value
    if isinstance(update.rate, Rate):
        limits |= {"rate_count": update.rate.count, "rate_window": update.rate.window}
    elif update.rate is not UNSET:
        limits["rate_count"] = update.rate
    if limits:
        told.append(("LimitChanged", limits))
    name = update.name or ""
    scope: dict[str, Fact] = {"is_default": True} if update.name is None else {}
    if update.dependency:
        scope["dependency"] = update.dependency
    return [
        Notice(
            at=now,
            name=what,
            kind=update.subject,
            subject=name,
            queue=name if update.subject == "queue" else update.queue,
            tenant=name if update.subject in ("tenant", "tenant_dependency") else "",
            by=by,
            reason=reason,
            facts=facts | scope,
        )
        for what, facts in told
    ]


def _person(author: Author) -> tuple[str, str]:
    """Return who did it, and why; empty if no person did."""
    return (author.by, author.reason) if isinstance(author, Audit) else ("", "")
