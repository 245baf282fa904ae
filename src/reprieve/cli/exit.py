"""How a command ends: its exit status, and one line of error message."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from reprieve.errors import (
    ConcurrentModification,
    InvalidRetryState,
    InvalidState,
    MaxRetriesExceeded,
    ReprieveError,
    UnknownTask,
    ValidationError,
)

FAILED, MISUSED, MISSING, CONFLICT, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit statuses: a failure, wrong usage, something not found, a job in the wrong state, and Ctrl-C."""

_CONFLICTS = (ConcurrentModification, InvalidRetryState, InvalidState, MaxRetriesExceeded)


def status_of(error: ReprieveError) -> int:
    """Return the exit status for an error."""
    match error:
        case ValidationError():
            return MISUSED
        case _ if error.code.endswith("_not_found") or isinstance(error, UnknownTask):
            return MISSING
        case _ if isinstance(error, _CONFLICTS):
            return CONFLICT
        case _:
            return FAILED


def run(main: Callable[..., object], args: Sequence[str] | None = None, **settings: Any) -> NoReturn:  # noqa: ANN401 - as click's main
    """Run click's `main`, and exit.

    A `ReprieveError` and a usage error print one line; any other exception is a bug and prints its traceback.
    """
    words = list(sys.argv[1:] if args is None else args)
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    settings["standalone_mode"] = False
    try:
        _accept_any_text()
        status = main(words, **settings)
    except ReprieveError as error:
        _fail(error.code, str(error), status_of(error), as_json=as_json)
    except click.UsageError as error:
        _fail("usage_error", _usage(error), MISUSED, as_json=as_json)
    except click.ClickException as error:
        _fail("cli_error", error.format_message(), error.exit_code, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except OSError as error:
        _fail("os_error", str(error), FAILED, as_json=as_json)
    sys.exit(status if isinstance(status, int) else 0)


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    return message if error.ctx is None else f"{message} (see {error.ctx.command_path} --help)"


def _fail(code: str, message: str, status: int, *, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps({"error": {"code": code, "message": one_line(message)}}), err=True)
    else:
        print_error(message)
    sys.exit(status)


def print_error(message: str) -> None:
    """Print one line on standard error: `error: what happened; what to do`."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {one_line(message)}", err=True, color=_may_colour())


def one_line(message: str) -> str:
    """Return a message without line breaks and control characters; it may quote other programs."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in message).split())


def _may_colour() -> bool | None:
    """Return whether the environment forces or forbids colours; None: the terminal decides."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _accept_any_text() -> None:
    """Replace bytes that are not valid text, and characters that the terminal cannot show."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")
