"""Checks of requests for series, of what sessions count, and of how long series are kept."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.duration import spell
from reprieve.core.series import (
    MAX_KEPT_SECONDS,
    MEASURES,
    NUMBERS,
    OTHERS,
    STEP_MS,
    STEPS,
    SUBJECTS,
    SeriesDelta,
    SeriesSubject,
    Step,
)
from reprieve.errors import ValidationError
from reprieve.stores.check import MAX_AT
from reprieve.stores.check_kinds import check_record, several
from reprieve.stores.protocol import (
    MAX_SERIES_BUCKETS,
    MAX_SERIES_NAMES,
    MAX_SERIES_POINTS,
    Retention,
    SeriesRequest,
)
from reprieve.stores.series import buckets

MAX_DELTAS: Final = 10_000
"""Deltas that one claim may have."""

MAX_COUNT: Final = 1 << 48
MAX_NAMES_LISTED: Final = 1_000


def check_series_request(request: SeriesRequest, now: int) -> SeriesRequest:
    """Return a request with plain values; raise a `ValidationError` for one that cannot be answered."""
    check_record(request, SeriesRequest)
    check_subject(request.subject)
    values.one_of(request.step, STEPS, "step of series", ValidationError)
    measures = several(request.measures, "measures")
    for measure in measures:
        values.one_of(measure, sorted(MEASURES), "measure", ValidationError)
    wanted = several(request.names, "names of series")
    check_range(request.since_at, request.until_at)
    kept = MAX_KEPT_SECONDS[request.step]
    if request.since_at < now - kept * 1_000 - STEP_MS[request.step]:
        message = (
            f"series in steps of {_spelled(request.step)} are kept for {spell(kept)}; ask for {_longer(request, now)}"
        )
        raise ValidationError(message)
    if len(wanted) > MAX_SERIES_NAMES:
        message = f"series of {MAX_SERIES_NAMES} names can be read at once, got {len(wanted)}"
        raise ValidationError(message)
    if request.subject == "all" and any(wanted):
        message = f"the subject all has no names, got {values.shown(wanted)}"
        raise ValidationError(message)
    names = tuple(dict.fromkeys(_name(name, request.subject) for name in wanted))
    count = len(buckets(request.since_at, request.until_at, request.step))
    name_count = len(names) or (1 if request.subject == "all" else MAX_SERIES_NAMES)
    if count > MAX_SERIES_BUCKETS or count * name_count > MAX_SERIES_POINTS:
        message = (
            f"{count:,} buckets of {name_count} names are too many: at most {MAX_SERIES_BUCKETS:,}, and "
            f"{MAX_SERIES_POINTS:,} for all names; ask for a shorter time, longer steps or fewer names"
        )
        raise ValidationError(message)
    return replace(request, names=names, measures=measures)


def check_subject(subject: SeriesSubject) -> None:
    """Raise a `ValidationError` for what has no series."""
    values.one_of(subject, SUBJECTS, "subject of series", ValidationError)


def check_range(since_at: int, until_at: int) -> None:
    """Raise a `ValidationError` for a time that is upside down, or no time at all."""
    for at, what in ((since_at, "since_at"), (until_at, "until_at")):
        values.whole(at, what, ValidationError, 0, MAX_AT)
    if since_at >= until_at:
        message = f"since_at must be before until_at, got {since_at} and {until_at}"
        raise ValidationError(message)


def check_names_limit(limit: int) -> None:
    """Raise a `ValidationError` unless so many names can be listed."""
    values.whole(limit, "limit", ValidationError, 1, MAX_NAMES_LISTED)


def check_deltas(deltas: Sequence[SeriesDelta]) -> None:
    """Raise a `ValidationError` for what a session cannot have counted."""
    if len(deltas) > MAX_DELTAS:
        message = f"a claim can have {MAX_DELTAS:,} deltas of series at most, got {len(deltas):,}"
        raise ValidationError(message)
    for delta in deltas:
        values.whole(delta.minute, "minute", ValidationError, 0, MAX_AT // STEP_MS["minute"])
        values.name(delta.queue, "queue")
        values.name(delta.task, "task")
        values.name(delta.dependency, "dependency", may_be_empty=True)
        values.name(delta.tenant, "tenant", may_be_empty=True)
        for number, count in delta.numbers.items():
            values.whole(number, "number of a measure", ValidationError, 0, NUMBERS - 1)
            values.whole(count, "count of a measure", ValidationError, 0, MAX_COUNT)


def check_series_retention(retention: Retention) -> None:
    """Raise a `ValidationError` for series that would be kept for no time, or longer than they can be."""
    for step, kept in retention.series_for().items():
        # In this form the comparison rejects NaN too.
        if not 0 < values.to_float(kept) <= MAX_KEPT_SECONDS[step]:
            message = (
                f"series in steps of {_spelled(step)} must be kept for more than 0 and at most "
                f"{spell(MAX_KEPT_SECONDS[step])}, got {values.shown(kept)} seconds"
            )
            raise ValidationError(message)


def _name(name: object, subject: SeriesSubject) -> str:
    return OTHERS if name == OTHERS else values.name(name, f"{subject} of series", may_be_empty=True)


def _spelled(step: Step) -> str:
    return {"minute": "a minute", "ten_minutes": "ten minutes", "hour": "an hour"}[step]


def _longer(request: SeriesRequest, now: int) -> str:
    """Return the step that is still kept for the time of a request, in words."""
    for step in STEPS:
        if request.since_at >= now - MAX_KEPT_SECONDS[step] * 1_000:
            return f'step="{step}"'
    return "a later time"
