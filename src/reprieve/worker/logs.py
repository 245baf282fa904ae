"""Logs of a worker process: lines for people on a terminal, JSON for everything else."""

import logging
import sys
from typing import Literal, TypeAlias

import structlog

from reprieve.core.record import Record

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Style: TypeAlias = Literal["auto", "text", "json"]


class Logs(Record):
    """How a worker logs."""

    level: Level = "info"
    style: Style = "auto"
    colours: bool = False


def configure(logs: Logs) -> None:
    """Set the process up; everything goes to standard error."""
    is_text = logs.style == "text" or (logs.style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=logs.colours) if is_text else structlog.processors.JSONRenderer()
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
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
