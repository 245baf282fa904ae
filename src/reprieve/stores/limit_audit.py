"""Audit entries of limits: what a person changed, told as it was before and as it is after."""

from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core.audit import Action, Audit, AuditEntry, Facts
from reprieve.core.rate import Rate
from reprieve.stores.limit_fields import OWN_BITS, own_fields, pauses_of
from reprieve.stores.protocol import LimitUpdate, Pause

_FIELDS: Final = ("permits", "max_running", "rate", "pauses", "weight")


class LimitsBefore(NamedTuple):
    """The limits of a subject as a store has them; those of a subject that it does not know."""

    own: int = 0
    permits: int | None = None
    max_running: int | None = None
    rate_count: int | None = None
    rate_window: float | None = None
    weight: float = 1.0
    pauses: int = 0

    def facts(self) -> Facts:
        """Return them as an audit entry tells them."""
        rate = None if self.rate_count is None or self.rate_window is None else (self.rate_count, self.rate_window)
        values = {
            "permits": _number(self.permits),
            "max_running": _number(self.max_running),
            "rate": "none" if rate is None else _rate(*rate),
            "pauses": _pauses(pauses_of(self.pauses)),
        }
        own = own_fields(self.own)
        facts: Facts = {name: values[name] if name in own else "default" for name in OWN_BITS}
        return facts | {"weight": self.weight}


def facts_after(update: LimitUpdate) -> Facts:
    """Return what an update sets, as an audit entry tells it."""
    facts: Facts = {}
    for name in _FIELDS:
        value: Any = getattr(update, name)
        if value is UNSET:
            continue
        if value == "default" or name == "weight":
            facts[name] = value
        elif name == "rate":
            facts[name] = _rate(value.count, value.window) if isinstance(value, Rate) else "none"
        else:
            facts[name] = _pauses(value) if name == "pauses" else _number(value)
    return facts


def limit_entry(update: LimitUpdate, now: int, audit: Audit, before: Facts) -> AuditEntry | None:
    """Return the entry of an update by a person; None if it changes nothing, as a repeat of the call does."""
    entry = limit_entry_without_before(update, now, audit)
    known = {name: before[name] for name in entry.after}
    return None if known == entry.after else replace(entry, before=known)


def limit_entry_without_before(update: LimitUpdate, now: int, audit: Audit) -> AuditEntry:
    """Return the entry of an update by a person, for a store that adds what was before in the write itself."""
    return AuditEntry(
        at=now,
        actor=audit.by,
        action=_action(update),
        kind=update.subject,
        name=(update.dependency if update.subject == "tenant_dependency" else update.name) or "",
        tenant=(update.name if update.subject in ("tenant", "tenant_dependency") else "") or "",
        queue=update.name or "" if update.subject == "queue" else update.queue,
        reason=audit.reason,
        after=facts_after(update),
        request_id=audit.request_id,
        operation=audit.operation,
    )


def _action(update: LimitUpdate) -> Action:
    """Return the word for what an update does: that of its only field, or "limit" for several."""
    fields = [name for name in _FIELDS if getattr(update, name) is not UNSET]
    match fields:
        case ["weight"]:
            return "weight"
        case ["pauses"]:
            return "resume" if not update.pauses or update.pauses == "default" else "pause"
        case ["permits"] if update.permits == 0:
            return "hold"
        case ["permits"] if update.permits is None or update.permits == "default":
            return "release"
        case _:
            return "limit"


def _number(value: int | None) -> int | str:
    return "none" if value is None else value


def _rate(count: int, window: float) -> str:
    return f"{count}/{window:g}s"


def _pauses(pauses: tuple[Pause, ...]) -> str:
    return ", ".join(sorted(pauses)) or "none"
