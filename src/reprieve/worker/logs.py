"""Logs of a worker process: lines for people on a terminal, JSON for everything else.

A line that cannot be written is lost; the work goes on.
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
from reprieve.core.printable import printable_json
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
    """When the worker started, in milliseconds since 1970: an earlier failure is not in this log."""


class LineWriter(structlog.WriteLogger):
    """Writes each line at once; a line that cannot be written is lost."""

    def msg(self, message: str) -> None:
        """Write a line, unless the reader is gone, the disk is full, or the file is closed."""
        try:
            super().msg(message)
        except BrokenPipeError:
            self._discard_all()
        except (OSError, ValueError):
            pass

    # As in the base class: the writer does not distinguish levels.
    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg

    def _discard_all(self) -> None:
        """Write to the null device from now on: what is still in the buffer would fail again at the exit."""
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._file.fileno())
            os.close(null)


_level: int | None = None
"""The lowest level that is shown; None before `configure`."""

_processors: list[Processor] = []
"""The processors that `configure` has given to structlog."""

_is_ours = False
"""Whether structlog still has these processors."""

_started_at = 0
"""When the worker that this process belongs to started."""

_handler: "LoggingHandler | None" = None
"""Shows the records of `logging` where the application has no handler of its own."""


def configure(logs: Logs) -> None:
    """Set up the logs of this process; lines go to standard error, if it is open."""
    global _level, _handler, _started_at, _processors  # noqa: PLW0603 - a process logs in one way
    if sys.stderr is None:
        # It was closed before the process began.
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
        logger_factory=lambda *_: LineWriter(stream),
        cache_logger_on_first_use=True,
    )
    _handler = LoggingHandler(LineWriter(stream), finish)


def is_configured() -> bool:
    """Whether `configure` has set this process up."""
    return _level is not None


def shows(level: Level) -> bool:
    """Whether lines of this level are shown; False before `configure`."""
    return _level is not None and _level <= getattr(logging, level.upper())


def shows_tracebacks() -> bool:
    """Whether the log may show tracebacks of failed attempts: a death is a warning, other failures are less."""
    return _level is not None and _level <= logging.WARNING


def started_at() -> int:
    """Return when the worker that this process belongs to started, in milliseconds since 1970."""
    return _started_at


def attach() -> None:
    """Add the running job to the application's own records of `logging`.

    Where the application has set `logging` up, its handlers stay as they are, and each record has the fields of
    `job_fields`. Elsewhere records are shown as lines of the worker. Call it when the application is loaded, and again
    when more of it may have set `logging` up.
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
    """Yield the handlers of every logger, without the null handlers of libraries."""
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in known:
        if isinstance(logger, logging.Logger):
            yield from (handler for handler in logger.handlers if not isinstance(handler, logging.NullHandler))


def fields_of(running: Running | None) -> dict[str, object]:
    """Return the fields of the running job; empty values where none runs."""
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
    """Add a job to every line of structlog in this context.

    Our own processor finds the running job when a line is written. Where the application has set structlog up, the
    fields are bound, at a cost to every attempt.
    """
    if not _is_ours:
        structlog.contextvars.bind_contextvars(**job_fields(running.job))


def _name_job(_: object, __: str, event: EventDict) -> EventDict:
    """Add the running job, unless the line names a job itself."""
    running = running_job()
    return event if running is None else {**job_fields(running.job), **event}


def add_job(record: logging.LogRecord) -> bool:
    """Add the fields of the running job to a record, unless it has them; always True, so that no record is dropped."""
    for name, value in fields_of(running_job()).items():
        if name not in record.__dict__:
            record.__dict__[name] = value
    return True


class LoggingHandler(logging.Handler):
    """Shows records of `logging` as lines of the worker."""

    def __init__(self, lines: LineWriter, finish: list[Processor]) -> None:
        """Take where lines go, and the processors that complete them."""
        super().__init__()
        self._lines = lines
        self._finish = finish

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, with the fields of its `extra`."""
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
        """Write a record; one that cannot be rendered is lost, as one that cannot be written."""
        with contextlib.suppress(Exception):
            return bool(super().handle(record))
        return False


_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}

_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _as_json(entry: object, **_: object) -> str:
    """Return an entry as JSON, in a third of the standard library's time: every failed attempt is logged."""
    return printable_json(_encode(entry).decode())


def _name_traceback(_: object, __: str, event: EventDict) -> EventDict:
    """Rename the traceback of `log.exception` to the field that failed attempts use."""
    if "exception" in event:
        event["traceback"] = event.pop("exception")
    return event


def _text(logs: Logs) -> TextRenderer:
    return TextRenderer(colours=logs.colours, is_complete=logs.level == "debug")
