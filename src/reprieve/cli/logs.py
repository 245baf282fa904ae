"""How commands that run on log: their options, and what these mean."""

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
    """Set the process up to log as its options say."""
    from reprieve.worker import logs

    how = logs.Logs(level=level, style=style, colours=_may_colour())
    logs.configure(how)
    return how


def _may_colour() -> bool:
    from rich.console import Console

    # Whoever starts a worker without standard error has none.
    return sys.stderr is not None and sys.stderr.isatty() and not Console(stderr=True).no_color
