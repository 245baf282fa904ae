"""Logs of a worker process: lines for people on a terminal, JSON for everything else.

Nobody stops working because nobody reads: a line that cannot be written is lost, and nothing else.
"""

import contextlib
import logging
import os
import sys
from typing import Literal, TypeAlias

import msgspec
import structlog

from reprieve.core.record import Record

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Style: TypeAlias = Literal["auto", "text", "json"]


class Logs(Record):
    """How a worker logs."""

    level: Level = "info"
    style: Style = "auto"
    colours: bool = False


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


def configure(logs: Logs) -> None:
    """Set the process up; everything goes to standard error, if there is any."""
    if sys.stderr is None:
        # So Python says that it was closed before the process began.
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for as long as the process lives
    stream = sys.stderr
    is_text = logs.style == "text" or (logs.style == "auto" and stream.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=logs.colours)
        if is_text
        else structlog.processors.JSONRenderer(serializer=_as_json)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, logs.level.upper())),
        logger_factory=lambda *_: Lines(stream),
        cache_logger_on_first_use=True,
    )


_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _as_json(entry: object, **_: object) -> str:
    """Write an entry in a third of the time that the standard library takes: every failed attempt is logged."""
    return _encode(entry).decode()
