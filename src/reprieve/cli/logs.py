"""Log options of long-running commands."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:  # logs are set up when a command runs
    from reprieve.worker.logs import Level, Logs, Style

F = TypeVar("F", bound=Callable[..., object])


def log_options(command: F) -> F:
    """Add `--log-level` and `--log-style` to a command."""
    level = click.Choice(["debug", "info", "warning", "error"])
    style = click.Choice(["auto", "text", "json"])
    command = click.option("--log-style", type=style, default="auto", show_default=True)(command)
    return click.option("--log-level", type=level, default="info", show_default=True)(command)


def configured(level: "Level", style: "Style") -> "Logs":
    """Configure logging by the options, and the standard `logging` module unless the app has configured it."""
    from reprieve.clock import now
    from reprieve.worker import logs

    how = logs.Logs(level=level, style=style, colours=_may_colour(), started_at=now())
    logs.configure(how)
    logs.attach()
    return how


def _may_colour() -> bool:
    """Return whether standard error is a terminal with colours, and NO_COLOR is not set."""
    if sys.stderr is None or not sys.stderr.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
