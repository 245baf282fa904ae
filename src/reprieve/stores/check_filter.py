"""Checks of filters: each value for itself, and whether a job can match all of them together."""

from typing import Final, get_args

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.ids import parse_id
from reprieve.core.job import HIGH, LOW, Death
from reprieve.core.status import Status
from reprieve.errors import InvalidId, ValidationError
from reprieve.stores.check_kinds import check_record, several
from reprieve.stores.places import RUNNING, WAITING, possible_statuses
from reprieve.stores.protocol import MAX_FILTER_NAMES, MAX_NAMES, Filter, NameSubject, Order, Range, Tally

MAX_TEXT_CHARS: Final = 1_000

_LISTS: Final = ("queues", "tenants", "tasks", "dependencies", "codes", "fingerprints")
_MAY_BE_EMPTY: Final = ("tenants", "dependencies", "codes", "fingerprints")
_TEXTS: Final = ("key", "session")
_RANGES: Final = ("attempts", "created", "due", "ended")
_TOGETHER: Final = (
    ("death", "a death", "dead"),
    ("session", "a session", "running or stuck"),
    ("ended", "an end", "dead, cancelled or succeeded"),
)
"""Fields that only jobs of some statuses have."""
_ORDERED: Final[dict[Order, frozenset[Status]]] = {"due": WAITING, "longest": RUNNING}
"""Orders that only jobs of some statuses have."""


def check_filter(wanted: Filter, order: Order = "oldest") -> Filter:
    """Return a filter with plain values; raise a `ValidationError` for one that no job can match.

    A name that no job can have raises `InvalidName`.
    """
    check_record(wanted, Filter)
    values.one_of(order, get_args(Order), "order", ValidationError)
    wanted = _plain(wanted)
    for name in _RANGES:
        _check_range(name, getattr(wanted, name))
    if wanted.priority is not None:
        values.whole(wanted.priority, "priority of a filter", ValidationError, HIGH, LOW)
    if wanted.death is not None:
        values.one_of(wanted.death, get_args(Death), "death of a filter", ValidationError)
    _check_together(wanted, order)
    return wanted


def check_tally(by: str, top: int | None, at_most: int) -> None:
    """Raise a `ValidationError` for a tally by what jobs do not have, or of no names or jobs."""
    values.one_of(by, get_args(Tally), "what jobs are counted by", ValidationError)
    if top is not None:
        values.whole(top, "top", ValidationError, 1)
    values.whole(at_most, "at_most", ValidationError, 1)


def check_names(subject: str, limit: int) -> None:
    """Raise a `ValidationError` for names of what has none, or of too many."""
    values.one_of(subject, get_args(NameSubject), "subject of names", ValidationError)
    values.whole(limit, "limit of names", ValidationError, 1, MAX_NAMES)


def _plain(wanted: Filter) -> Filter:
    facts: dict[str, object] = {}
    for name in _LISTS:
        names: object = getattr(wanted, name)
        if not isinstance(names, tuple):
            message = f"{name} of a filter must be a tuple of names, got {values.shown(names)}"
            raise ValidationError(message)
        if len(names) > MAX_FILTER_NAMES:
            message = f"a filter may have {MAX_FILTER_NAMES} {name}, got {len(names):,}; search for some at a time"
            raise ValidationError(message)
        may_be_empty = name in _MAY_BE_EMPTY
        facts[name] = tuple(
            dict.fromkeys(values.name(one, f"{name} of a filter", may_be_empty=may_be_empty) for one in names)
        )
    for name in _TEXTS:
        facts[name] = values.name(getattr(wanted, name), f"{name} of a filter", may_be_empty=True)
    if wanted.group is not None:
        facts["group"] = values.name(wanted.group, "group of a filter", may_be_empty=True)
    text = values.text(wanted.text, "text of a filter", ValidationError)
    if len(text) > MAX_TEXT_CHARS:
        message = f"text of a filter may have {MAX_TEXT_CHARS:,} characters, got {len(text):,}; search for a part of it"
        raise ValidationError(message)
    facts["statuses"] = frozenset(
        values.one_of(status, get_args(Status), "a status of a filter", ValidationError)
        for status in several(wanted.statuses, "statuses of a filter")
    )
    facts["id_parts"] = tuple(
        values.text(part, "a part of an id", ValidationError)
        for part in several(wanted.id_parts, "id_parts of a filter")
    )
    if wanted.ids is not None:
        facts["ids"] = tuple(
            parse_id(values.text(one, "an id", InvalidId)) for one in several(wanted.ids, "ids of a filter")
        )
    if wanted.stuck_after is not None:
        facts["stuck_after"] = values.number(
            wanted.stuck_after, "stuck_after of a filter", ValidationError, 0.0, MAX_DURATION_SECONDS
        )
    return replace(wanted, **facts, text=text)


def _check_range(name: str, wanted: object) -> None:
    if wanted is None:
        return
    if not isinstance(wanted, Range):
        message = f"{name} of a filter must be a Range, got {values.shown(wanted)}"
        raise ValidationError(message)
    for end in ("since", "until"):
        value = getattr(wanted, end)
        if value is not None:
            values.whole(value, f"{end} of {name}", ValidationError, most=(1 << 62))
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        message = f"{name} of a filter goes from {wanted.since} to before {wanted.until}: exchange them"
        raise ValidationError(message)


def _check_together(wanted: Filter, order: Order) -> None:
    statuses = ", ".join(sorted(wanted.statuses))
    for name, what, possible in _TOGETHER:
        alone = replace(Filter(statuses=wanted.statuses), **{name: getattr(wanted, name)})
        if getattr(wanted, name) and not possible_statuses(alone):
            message = f"no job that is {statuses} has {what}: leave it out, or ask for jobs that are {possible}"
            raise ValidationError(message)
    if not possible_statuses(wanted):
        message = "no job has a session, a death or an end together: ask for one of them"
        raise ValidationError(message)
    allowed = _ORDERED.get(order)
    if allowed is not None and not (wanted.statuses and wanted.statuses <= allowed):
        message = (
            f"the order {order!r} is for jobs that are {', '.join(sorted(allowed))}: "
            "ask for these statuses only, or for the order 'oldest' or 'newest'"
        )
        raise ValidationError(message)
