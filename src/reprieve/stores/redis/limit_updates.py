"""Limit updates as the script reads them."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from reprieve.core.audit import AuditEntry
from reprieve.core.rate import Rate
from reprieve.errors import StoreError
from reprieve.stores.audit_pages import pack_entry
from reprieve.stores.limit_fields import inherited_bits, pause_bits
from reprieve.stores.protocol import LimitUpdate, Subject

SUBJECT_LETTERS: Final[dict[Subject, str]] = {
    "queue": "q",
    "tenant": "t",
    "task": "k",
    "dependency": "d",
    "group": "g",
    "tenant_dependency": "p",
}
"""What scripts call a subject."""

_encode = msgspec.msgpack.Encoder().encode

Step = Literal["record", "record_and_apply", "apply_next", "apply_all"]


class WantedState(NamedTuple):
    """A state of the limits that are wanted in all partitions, as one of them gets it: see update_limits.lua."""

    step: Step
    number: int
    seen: int = 0
    seen_direct: int = -1
    fields: tuple[str | bytes, ...] = ()


class Overtaken(StoreError):
    """Another process has changed the wanted limits, or the partition misses a state: read them again."""


class LimitAudit(NamedTuple):
    """What a call tells: the audit entries of each update and of the entry, and packed notices."""

    updates: tuple[AuditEntry | None, ...] = ()
    entry: AuditEntry | None = None
    notices: tuple[bytes, ...] = ()


NO_AUDIT: Final = LimitAudit()
"""What a call of a program leaves behind: no audit entry and no notice."""


def encode(updates: Sequence[LimitUpdate], now: int, state: WantedState | None, partitions: int) -> bytes:
    """Return the first argument of the script; defaults are shares for so many partitions."""
    packed = state is not None and {
        "step": state.step,
        "number": state.number,
        "seen": state.seen,
        "seen_direct": state.seen_direct,
        "partitions": partitions,
    }
    return _encode((now, tuple(map(_changes, updates)), packed))


def told(audit: LimitAudit, updates: int) -> bytes:
    """Return what a call of so many updates tells, as the script reads it: each part after its length."""
    entries = (audit.entry, *(audit.updates or (None,) * updates))
    parts = (*(b"" if entry is None else pack_entry(entry) for entry in entries), *audit.notices)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def subject_of(subject: Subject, name: str, queue: str, dependency: str) -> dict[str, object]:
    """Return how scripts name a subject: see subjects.lua."""
    return {"subject": SUBJECT_LETTERS[subject], "name": name, "queue": queue, "dependency": dependency}


def _changes(update: LimitUpdate) -> dict[str, object]:
    """Return what an update changes: None is False, and what it leaves alone is missing."""
    changes = subject_of(update.subject, update.name or "", update.queue, update.dependency)
    changes["inherited"] = inherited_bits(update)
    changes["is_default"] = update.name is None
    for field in ("permits", "max_running"):
        value = getattr(update, field)
        if value is not UNSET and value != "default":
            changes[field] = False if value is None else value
    if isinstance(update.rate, Rate):
        changes["rate"] = {"count": update.rate.count, "window": update.rate.window, "bucket": update.rate.bucket}
    elif update.rate is None:
        changes["rate"] = False
    if update.weight is not UNSET:
        changes["weight"] = update.weight
    if update.pauses is not UNSET and update.pauses != "default":
        changes["pauses"] = pause_bits(update.pauses)
    return changes


def share_of_default(update: LimitUpdate, number: int, partitions: int) -> LimitUpdate:
    """Return an update of a default for one of several partitions: an equal part of each number, and at least 1.

    The jobs of every name are spread evenly. Shares of a default are not moved: there may be any number of names.
    """
    if update.name is not None:
        return update

    def share(limit: int) -> int:
        return limit and max(1, limit // partitions + (number < limit % partitions))

    return replace(
        update,
        permits=share(update.permits) if isinstance(update.permits, int) else update.permits,
        max_running=share(update.max_running) if isinstance(update.max_running, int) else update.max_running,
        rate=replace(update.rate, count=share(update.rate.count)) if isinstance(update.rate, Rate) else update.rate,
    )
