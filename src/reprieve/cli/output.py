"""Output of commands: tables and lines for people, one JSON document for scripts.

Colours appear on a terminal or with FORCE_COLOR, and never with NO_COLOR.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:  # rich is slow to import, and neither help nor JSON needs it
    from rich.console import Console
    from rich.text import Text

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""

_UNLIMITED_COLUMNS = 10_000
"""The width of a pipe or a file."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for scripts.")
"""The option of every command that prints a result."""


def print_json(document: object) -> None:
    """Print records, lists and dictionaries as one JSON document."""
    import msgspec

    from reprieve.core.printable import printable_json

    click.echo(printable_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()))


def json_line(document: object) -> str:
    """Return a record, list or dictionary as JSON in one line."""
    import msgspec

    from reprieve.core.printable import printable_json

    return printable_json(msgspec.json.encode(document).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table; on a terminal it fits the width."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*map(_text, row))
    _unbroken().print(table)


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one per line; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, cell in facts:
        text = _text(cell)
        if text:
            table.add_row(Text(f"  {name}", "dim"), text)
    _unbroken().print(table)


def print_line(*cells: Cell) -> None:
    """Print one line from its parts; on a terminal it wraps between words, elsewhere it stays whole."""
    from rich.text import Text

    _unbroken().print(Text.assemble(*map(_text, cells)))


def print_row(widths: Sequence[int], cells: Sequence[Cell]) -> None:
    """Print cells in columns of these widths; the last takes the rest, and on a terminal wraps within it."""
    from rich.table import Table

    row = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for width in widths:
        row.add_column(width=width)
    row.add_row(*map(_text, cells))
    _unbroken().print(row)


def print_chart(line: Sequence[Cell]) -> None:
    """Print a line of a chart; what does not fit is cut off."""
    from rich.text import Text

    _console().print(Text.assemble(*map(_text, line)), no_wrap=True, overflow="crop", crop=True)


def print_text(text: str) -> None:
    """Print lines as they are: neither wrapped nor cut, so that they can be copied."""
    click.echo(_printable(text))


def width() -> int:
    """Return the width of the output in columns."""
    return _console().width


def is_terminal() -> bool:
    """Return whether standard output is a terminal: a pipe or a file gets full lines."""
    return sys.stdout.isatty()


def styled(parts: Sequence[tuple[str, str]]) -> str:
    """Return a line with the colours of its parts, if colours are on."""
    if not any(style for _, style in parts) or not _has_colours():
        return _printable("".join(text for text, _ in parts))
    from rich.text import Text

    console = _console()
    with console.capture() as capture:
        console.print(Text.assemble(*map(_text, parts)), end="", soft_wrap=True)
    return capture.get()


def _has_colours() -> bool:
    """Return whether colours may be on, without importing rich, which is slow to import."""
    return is_terminal() or bool(os.environ.get("FORCE_COLOR"))


def print_note(text: str) -> None:
    """Print a note about the output: below it on a terminal, elsewhere on standard error.

    It is never wrapped, so that a cursor in it can be copied.
    """
    if is_terminal():
        click.echo(styled([(text, "dim")]), color=True)
    else:
        click.echo(_printable(text), err=True)


@contextmanager
def working(on: str) -> Iterator[None]:
    """Show on the terminal what is being done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(on):
        yield


def _text(cell: Cell) -> "Text":
    from rich.text import Text

    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(_printable(text), style)


def _printable(text: str) -> str:
    from reprieve.core.printable import printable

    return printable(text)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _unbroken() -> "Console":
    """Return a console that wraps lines on a terminal only: grep needs whole lines."""
    console = _console()
    if not is_terminal():
        console.width = _UNLIMITED_COLUMNS
    return console
