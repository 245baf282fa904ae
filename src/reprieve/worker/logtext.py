"""Log lines for people: one compact line per event in local time, the most important first.

JSON keeps every field of an event; here only what helps a person is shown, and a traceback only when it is new.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from structlog import DropEvent
from structlog.typing import EventDict

from reprieve.core.duration import spell
from reprieve.core.printable import printable

LABEL_WIDTH: Final = 9
"""Columns of the first word, which says the outcome or the level."""

ID_DIGITS: Final = 8
"""Hex digits by which a job is shown, as in `reprieve jobs list`: the last of its id."""

REPEAT_AFTER_SECONDS: Final = 60.0
"""Seconds after which the same traceback of another job is shown again."""

MAX_REMEMBERED: Final = 1_000
"""Tracebacks that are remembered as shown."""

PARKED_EVERY_SECONDS: Final = 10.0
"""Seconds between two lines about a job that stays parked for the same reason."""

MAX_NAMED_JOBS: Final = 3
"""Running jobs that a stopping worker names; the others are counted."""

MAX_REASON_CHARS: Final = 300
"""Characters of an error that one line shows."""

OUTCOMES: Final = {
    "job started": ("started", "dim"),
    "job succeeded": ("succeeded", "green"),
    "retry scheduled": ("retry", "yellow"),
    "job parked": ("parked", "cyan"),
    "job died": ("died", "red"),
    "job cancelled": ("cancelled", "magenta"),
    "job recovered": ("recovered", "yellow"),
    "late result refused": ("refused", "yellow"),
}
"""Events about a job: the word that a line begins with, and its colour."""

LEVELS: Final = {"debug": "dim", "info": "dim", "warning": "yellow", "error": "red", "critical": "red"}

_CODES: Final = {"dim": "2", "red": "1;31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")
_JOB_FIELDS: Final = ("jobId", "task", "tenant", "companyId", "attempt")


class TextRenderer:
    """Renders events of structlog as lines for people; the last processor of a chain."""

    def __init__(self, *, colours: bool, is_complete: bool = False) -> None:
        """Show lines with or without colours; a complete log shows each time that a job parks again."""
        self._colours = colours
        self._is_complete = is_complete
        self._shown: OrderedDict[object, float] = OrderedDict()
        """When, in seconds since 1970, each traceback was shown last."""

    def __call__(self, _: object, __: str, event: EventDict) -> str:
        """Return the line of an event, and below it what needs lines of its own.

        Raises `DropEvent` for a job that parked for the same reason a moment ago.
        """
        fields = {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}
        if not self._is_complete and event.get("event") == "job parked" and _is_recent(fields):
            raise DropEvent
        at = _instant(fields.pop("timestamp", ""))
        name, level = str(fields.pop("event", "")), str(fields.pop("level", "info"))
        label, colour = OUTCOMES.get(name, (level, LEVELS.get(level, "")))
        below = self._below(name, fields, 0.0 if at is None else at.timestamp())
        words, *rest = self._words(name, fields).splitlines() or [""]
        time = "--:--:--" if at is None else f"{at:%H:%M:%S}"
        head = f"{self._paint(time, 'dim')} {self._paint(f'{label:<{LABEL_WIDTH}}', colour)}"
        line = " ".join([head, *self._subject(fields), words]).rstrip()
        return "\n".join([line, *(f"    {part}".rstrip() for part in (*rest, *below))])

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self._colours and colour else text

    def _subject(self, fields: Mapping[str, object]) -> list[str]:
        """Return the job that a line is about: its task, its short id and its tenant."""
        job_id, task = str(fields.get("jobId") or ""), str(fields.get("task") or "")
        if not job_id:
            return []
        tenant = fields.get("tenant") or fields.get("companyId")
        whose = [self._paint(f"for {tenant}", "dim")] if tenant else []
        # The empty part makes two spaces before the words.
        return [part for part in (task, self._paint(_short(job_id), "dim"), *whose) if part] + [""]

    def _words(self, name: str, fields: Mapping[str, object]) -> str:
        """Return what a line says after the job."""
        if say := _SENTENCES.get(name):
            words, aside = say(fields)
            return f"{words} {self._paint(f'({aside})', 'dim')}" if aside else words
        hidden = {*_JOB_FIELDS} if fields.get("jobId") else set()
        reason = _reason(fields)
        logger = str(fields.get("logger") or "")
        notes = [f"[{logger}]"] if logger and logger != "reprieve" else []
        hidden |= {"logger", "traceback", "stack", "fingerprint", "repeatedAfter"}
        hidden |= {"errorReason", "errorType", "errorCode"} if reason else set()
        notes += [f"{key}={_value(value)}" for key, value in fields.items() if key not in hidden and value is not None]
        words = f"{name}: {reason}" if reason else name
        return f"{words}  {self._paint(' '.join(notes), 'dim')}" if notes else words

    def _below(self, name: str, fields: Mapping[str, object], at: float) -> list[str]:
        """Return the lines of a traceback, unless the same was shown already."""
        stack = str(fields.get("stack") or "").splitlines()
        traceback = str(fields.get("traceback") or "")
        if not traceback:
            return stack
        is_ours = name in OUTCOMES or "part" in fields
        return stack if is_ours and self._is_known(fields, traceback, at) else [*stack, *traceback.splitlines()]

    def _is_known(self, fields: Mapping[str, object], traceback: str, at: float) -> bool:
        """Return whether a traceback was shown before: of the same job, or of any other a moment ago."""
        key = fields.get("task"), fields.get("fingerprint") or traceback
        shown_at = self._shown.get(key)
        if fields.get("repeatedAfter") is not None or (shown_at is not None and at - shown_at < REPEAT_AFTER_SECONDS):
            return True
        self._shown[key] = at
        self._shown.move_to_end(key)
        if len(self._shown) > MAX_REMEMBERED:
            self._shown.popitem(last=False)
        return False


def _is_recent(fields: Mapping[str, object]) -> bool:
    """Return whether the same wait of a job was shown within the same span of seconds, by whichever process."""
    after, silent = fields.get("repeatedAfter"), fields.get("noAnswerFor")
    if not isinstance(after, int | float) or not isinstance(silent, int | float):
        return False
    return silent // PARKED_EVERY_SECONDS == (silent - after) // PARKED_EVERY_SECONDS


def _instant(timestamp: object) -> datetime | None:
    """Return a timestamp in the machine's own time zone."""
    try:
        return datetime.fromisoformat(str(timestamp)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _short(job_id: str) -> str:
    return job_id.replace("-", "")[-ID_DIGITS:]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return printable(",".join(map(str, value)))
    text = printable(value if isinstance(value, str) else repr(value))
    return text if text and not any(character.isspace() for character in text) else repr(value)


def _reason(fields: Mapping[str, object]) -> str:
    """Return what went wrong; the exception's class is named unless the message says the same."""
    text = _ERRNO.sub("", " ".join(str(fields.get("errorReason") or "").split()))
    if len(text) > MAX_REASON_CHARS:
        text = text[: MAX_REASON_CHARS - 1] + "…"
    kind = str(fields.get("errorType") or "").rpartition(".")[2]
    if not kind or _letters(kind.removesuffix("Error")) in _letters(text):
        return text or kind
    return f"{kind}: {text}" if text else kind


def _letters(text: str) -> str:
    return _NOT_LETTERS.sub("", text.lower())


def _next_try(fields: Mapping[str, object]) -> str:
    delay_ms = fields.get("nextRetryDelay")
    return _seconds(delay_ms / 1_000 if isinstance(delay_ms, int | float) else 0.0)


def _seconds(value: object) -> str:
    length = float(value) if isinstance(value, int | float) else 0.0
    return spell(round(length, 1) if length < 10 else round(length))  # noqa: PLR2004 - from here tenths say nothing


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def _charges(fields: Mapping[str, object]) -> str:
    """Return how many failures count, out of how many, and whether this one does."""
    limit = fields.get("maxAttempts")
    counted = f"{fields.get('charged', 0)}{'' if limit is None else f'/{limit}'} charged"
    return counted if fields.get("isCharged", True) else f"spared, {counted}"


def _say_started(fields: Mapping[str, object]) -> tuple[str, str]:
    return f"attempt {fields.get('attempt')}", ""


def _say_succeeded(fields: Mapping[str, object]) -> tuple[str, str]:
    duration = fields.get("durationMs")
    took = duration / 1_000 if isinstance(duration, int | float) else 0.0
    return f"in {spell(took)}", f"attempt {fields.get('attempt')}"


def _say_retry(fields: Mapping[str, object]) -> tuple[str, str]:
    return f"{_reason(fields)}; next try in {_next_try(fields)}", _charges(fields)


def _say_parked(fields: Mapping[str, object]) -> tuple[str, str]:
    gate, silent = str(fields.get("gate") or ""), fields.get("noAnswerFor")
    waits = f"waits for {gate}"
    if fields.get("isCharged"):
        waits = "waits for its retry budget"
    elif isinstance(silent, int | float) and silent >= 1:
        waits = f"{gate} silent for {spell(round(silent))}"
    return f"{_reason(fields)}; {waits}, next try in {_next_try(fields)}", _charges(fields)


def _say_died(fields: Mapping[str, object]) -> tuple[str, str]:
    return f"{_reason(fields)}; {fields.get('death')}", _charges(fields)


def _say_cancelled(fields: Mapping[str, object]) -> tuple[str, str]:
    by, reason = str(fields.get("by") or ""), str(fields.get("reason") or "")
    return ": ".join(part for part in (f"by {by}" if by else "", reason) if part), ""


def _say_recovered(fields: Mapping[str, object]) -> tuple[str, str]:
    crashes = fields.get("crashes")
    return "its worker is gone, it runs again", f"crash {crashes}" if crashes else ""


def _say_refused(fields: Mapping[str, object]) -> tuple[str, str]:
    return f"its {fields.get('result')} came too late: the job was taken back before", ""


def _say_worker_started(fields: Mapping[str, object]) -> tuple[str, str]:
    queues = fields.get("queues")
    names = list(queues) if isinstance(queues, list | tuple) else []
    served = f"{'queue' if len(names) == 1 else 'queues'} {', '.join(map(str, names))}"
    size = f"{_count(fields.get('processes'), 'process')} × {_count(fields.get('slots'), 'slot')}"
    tasks = _count(fields.get("tasks"), "task")
    return f"worker started: {fields.get('target')} on {fields.get('store')}, {served}, {tasks}, {size}", ""


def _say_worker_stopping(fields: Mapping[str, object]) -> tuple[str, str]:
    ids, tasks = fields.get("jobs"), fields.get("tasks")
    named = list(zip(tasks, ids, strict=False)) if isinstance(ids, list) and isinstance(tasks, list) else []
    if not named:
        return "worker stopping: no job is running", ""
    jobs = ", ".join(f"{task} {_short(str(job_id))}".strip() for task, job_id in named[:MAX_NAMED_JOBS])
    if len(named) > MAX_NAMED_JOBS:
        jobs += f" and {len(named) - MAX_NAMED_JOBS} more"
    count, them = _count(len(named), "job"), "it" if len(named) == 1 else "them"
    if not fields.get("grace"):
        return f"worker stopping: giving {count} back now ({jobs})", ""
    grace = _seconds(fields.get("grace"))
    return f"worker stopping: waiting up to {grace} for {count} ({jobs}); Ctrl-C again gives {them} back now", ""


def _say_store_away(fields: Mapping[str, object]) -> tuple[str, str]:
    return f"store unavailable: {fields.get('errorReason')}", f"during {fields.get('during')}"


def _say_store_back(_: Mapping[str, object]) -> tuple[str, str]:
    return "store is back", ""


_SENTENCES: Final[dict[str, Callable[[Mapping[str, object]], tuple[str, str]]]] = {
    "job started": _say_started,
    "job succeeded": _say_succeeded,
    "retry scheduled": _say_retry,
    "job parked": _say_parked,
    "job died": _say_died,
    "job cancelled": _say_cancelled,
    "job recovered": _say_recovered,
    "late result refused": _say_refused,
    "worker started": _say_worker_started,
    "worker stopping": _say_worker_stopping,
    "store unavailable": _say_store_away,
    "store is back": _say_store_back,
}
"""What lines say: the words, and what stands in brackets behind them."""
