"""Logs of a worker process: lines for people on a terminal, JSON for everything else.

Nobody stops working because nobody reads: a line that cannot be written is lost, and nothing else.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from reprieve.context import Running, running_job
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.worker.logtext import TextRenderer

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Style: TypeAlias = Literal["auto", "text", "json"]


class Logs(Record):
    """How a worker logs."""

    level: Level = "info"
    style: Style = "auto"
    colours: bool = False
    started_at: int = 0
    """When the worker started, in milliseconds since 1970: what was logged before, its reader has not seen."""


class Lines(structlog.WriteLogger):
    """Writes each line at once, or loses it."""

    def msg(self, message: str) -> None:
        """Write a line. Whoever read them may be gone, the disk full, or the file closed."""
        try:
            super().msg(message)
        except BrokenPipeError:
            self._let_go()
        except (OSError, ValueError):
            pass

    # As in the class above: to a logger all levels are the same.
    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg

    def _let_go(self) -> None:
        """Write into nothing from now on: what is still in the buffer would fail again, at the latest at the end."""
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._file.fileno())
            os.close(nothing)


_level: int | None = None
"""From which level on lines are shown; None while nothing is set up here."""

_processors: list[Processor] = []
"""What this module has set structlog up with."""

_is_ours = False
"""Whether structlog still is as this module has set it up."""

_started_at = 0
"""When the worker that this process belongs to started."""

_handler: "Plain | None" = None
"""What shows the lines of `logging`, where the application has no handler of its own."""


def configure(logs: Logs) -> None:
    """Set the process up; everything goes to standard error, if there is any."""
    global _level, _handler, _started_at, _processors  # noqa: PLW0603 - a process logs in one way
    if sys.stderr is None:
        # So Python says that it was closed before the process began.
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for as long as the process lives
    stream = sys.stderr
    is_text = logs.style == "text" or (logs.style == "auto" and stream.isatty())
    _level, _started_at = getattr(logging, logs.level.upper()), logs.started_at
    finish: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _name_traceback,
        _text(logs) if is_text else structlog.processors.JSONRenderer(serializer=_as_json),
    ]
    _processors = [structlog.contextvars.merge_contextvars, _name_job, structlog.processors.add_log_level, *finish]
    structlog.configure(
        processors=_processors,
        wrapper_class=structlog.make_filtering_bound_logger(_level),
        logger_factory=lambda *_: Lines(stream),
        cache_logger_on_first_use=True,
    )
    _handler = Plain(Lines(stream), finish)


def is_configured() -> bool:
    """Whether `configure` has set this process up."""
    return _level is not None


def shows(level: Level) -> bool:
    """Whether lines of this level are shown by what `configure` has set up."""
    return _level is not None and _level <= getattr(logging, level.upper())


def shows_tracebacks() -> bool:
    """Whether a failed attempt may be logged with its traceback: a death is a warning, everything else less."""
    return _level is not None and _level <= logging.WARNING


def started_at() -> int:
    """Return when the worker that this process belongs to started, in milliseconds since 1970."""
    return _started_at


def attach() -> None:
    """Let the application's own lines of `logging` say which job they are about.

    Where the application has set `logging` up, its handlers stay as they are, and each record has the fields of
    `job_fields`. Elsewhere lines are shown as those of the worker. To be called when the application is loaded, and
    again when more of it may have been set up.
    """
    global _is_ours  # noqa: PLW0603 - as above
    if _handler is None:
        return
    _is_ours = structlog.get_config()["processors"] is _processors
    root = logging.getLogger()
    handlers = [handler for handler in _handlers() if handler is not _handler]
    for handler in handlers:
        handler.addFilter(add_job)
    if handlers:
        root.removeHandler(_handler)
    elif _handler not in root.handlers:
        root.addHandler(_handler)
        if root.level == logging.WARNING:
            root.setLevel(_level or logging.INFO)


def _handlers() -> Iterator[logging.Handler]:
    """Go through the handlers of every logger; those of libraries that do nothing do not count."""
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in known:
        if isinstance(logger, logging.Logger):
            yield from (handler for handler in logger.handlers if not isinstance(handler, logging.NullHandler))


def fields_of(running: Running | None) -> dict[str, object]:
    """Return what a line says of the job that it is about."""
    if running is None:
        return {"jobId": "", "companyId": "", "tenant": "", "task": "", "attempt": 0}
    return job_fields(running.job)


def job_fields(job: Job) -> dict[str, object]:
    """Return the fields that name a job; `companyId` is the tenant under the name that log pipelines know."""
    return {
        "jobId": job.id,
        "companyId": job.tenant,
        "tenant": job.tenant,
        "task": job.task,
        "attempt": job.attempt,
    }


def enter_job(running: Running) -> None:
    """Let every line of structlog in this context say which job it is about.

    A processor of ours looks the job up when a line is written. Where the application has set structlog up, the fields
    are bound, at a cost to every attempt.
    """
    if not _is_ours:
        structlog.contextvars.bind_contextvars(**job_fields(running.job))


def _name_job(_: object, __: str, event: EventDict) -> EventDict:
    """Name the job that runs here, unless the line names one itself."""
    running = running_job()
    return event if running is None else {**job_fields(running.job), **event}


def add_job(record: logging.LogRecord) -> bool:
    """Give a record the fields of the job that runs here, unless it has fields of these names; never drops one."""
    for name, value in fields_of(running_job()).items():
        if name not in record.__dict__:
            record.__dict__[name] = value
    return True


class Plain(logging.Handler):
    """Shows the lines of `logging` as those of the worker."""

    def __init__(self, lines: Lines, finish: list[Processor]) -> None:
        """Take where lines go, and what completes and writes them."""
        super().__init__()
        self._lines = lines
        self._finish = finish

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, with whatever was handed in as `extra`."""
        extra = {name: value for name, value in record.__dict__.items() if name not in _RECORD}
        event: EventDict = {"event": record.getMessage(), "logger": record.name, **extra}
        for name, value in fields_of(running).items() if (running := running_job()) is not None else ():
            event.setdefault(name, value)
        event["level"] = record.levelname.lower()
        if record.exc_info:
            event["exc_info"] = record.exc_info
        if record.stack_info:
            event["stack"] = record.stack_info
        shown: object = event
        for process in self._finish:
            shown = process(None, event["level"], shown)  # type: ignore[arg-type]  # each takes what the last one returns
        self._lines.msg(str(shown))

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record; a line that cannot be made is lost, as one that cannot be written."""
        with contextlib.suppress(Exception):
            return bool(super().handle(record))
        return False


_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}

_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _as_json(entry: object, **_: object) -> str:
    """Write an entry in a third of the time that the standard library takes: every failed attempt is logged."""
    return _encode(entry).decode()


def _name_traceback(_: object, __: str, event: EventDict) -> EventDict:
    """Give tracebacks one name, those of failed attempts and those of `log.exception`."""
    if "exception" in event:
        event["traceback"] = event.pop("exception")
    return event


def _text(logs: Logs) -> TextRenderer:
    return TextRenderer(colours=logs.colours, is_complete=logs.level == "debug")
