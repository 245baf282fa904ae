"""Limit updates as the script reads them."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from reprieve.errors import StoreError
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

PAUSE_BITS: Final = {"schedule": 1, "retry": 2}
"""How scripts store the pauses of a queue."""

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


def encode(updates: Sequence[LimitUpdate], now: int, state: WantedState | None) -> bytes:
    """Return the first argument of the script."""
    packed = state is not None and {
        "step": state.step,
        "number": state.number,
        "seen": state.seen,
        "seen_direct": state.seen_direct,
    }
    return _encode((now, tuple(map(_changes, updates)), packed))


def subject_of(subject: Subject, name: str, queue: str, dependency: str) -> dict[str, object]:
    """Return how scripts name a subject: see subjects.lua."""
    return {"subject": SUBJECT_LETTERS[subject], "name": name, "queue": queue, "dependency": dependency}


def _changes(update: LimitUpdate) -> dict[str, object]:
    """Return what an update changes: None is False, and what it leaves alone is missing."""
    changes = subject_of(update.subject, update.name, update.queue, update.dependency)
    if update.permits is not UNSET:
        changes["permits"] = False if update.permits is None else update.permits
    if update.max_running is not UNSET:
        changes["max_running"] = False if update.max_running is None else update.max_running
    if update.rate is not UNSET:
        rate = update.rate
        changes["rate"] = rate is not None and {"count": rate.count, "window": rate.window, "bucket": rate.bucket}
    if update.weight is not UNSET and update.subject == "tenant":
        changes["weight"] = update.weight
    if update.pauses is not UNSET and update.subject == "queue":
        changes["pauses"] = sum(PAUSE_BITS[pause] for pause in set(update.pauses))
    return changes
