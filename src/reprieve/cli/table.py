"""Tables that fit the terminal. Ids and statuses are never cut; a pipe gets full texts."""

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

import click

from reprieve.cli.output import Cell, is_terminal, styled, width

GAP = "  "


class Column(NamedTuple):
    """A column, and how it may shrink on a narrow terminal."""

    name: str
    shrinks: Literal["", "start", "middle", "end"] = ""
    """Where a text that is too long is cut; empty: never."""
    min_width: int = 0
    """The least width in characters."""
    is_optional: bool = False
    """Whether a terminal leaves it out when it is empty."""
    weight: int = 1
    """Its share of the width that the shrinking columns have."""


class Table:
    """Prints rows in batches: within the width of a terminal, elsewhere in full."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Create a table; the first batch determines the widths."""
        self._columns = columns
        self._widths: list[int] = []

    def print(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Print a batch of rows; the first batch prints the header too."""
        texts = [[_one_line(cell) for cell in row] for row in rows]
        if not self._widths:
            self._fit(texts)
            self._print_line([(column.name, "bold") for column in self._columns])
        for row, line in zip(rows, texts, strict=True):
            styles = ["" if isinstance(cell, str) else cell[1] for cell in row]
            self._print_line(list(zip(line, styles, strict=True)))

    def _fit(self, texts: list[list[str]]) -> None:
        names = [column.name for column in self._columns]
        self._widths = [max(map(_length, column)) for column in zip(names, *texts, strict=True)]
        if not is_terminal():
            return
        for number, column in enumerate(self._columns):
            if column.is_optional and not any(row[number] for row in texts):
                self._widths[number] = 0
        shown = sum(1 for one in self._widths if one)
        excess = sum(self._widths) + len(GAP) * (shown - 1) - width()
        while excess > 0 and (shrinking := [n for n, one in enumerate(self._columns) if self._may_shrink(n, one)]):
            self._widths[max(shrinking, key=lambda number: self._widths[number] / self._columns[number].weight)] -= 1
            excess -= 1

    def _may_shrink(self, number: int, column: Column) -> bool:
        return bool(column.shrinks) and self._widths[number] > max(column.min_width, len(column.name))

    def _print_line(self, cells: Sequence[tuple[str, str]]) -> None:
        shown = [number for number, one in enumerate(self._widths) if one]
        parts: list[tuple[str, str]] = []
        for number in shown:
            text, style = cells[number]
            if is_terminal():
                text = cut(text, self._widths[number], self._columns[number].shrinks)
            gap = "" if number == shown[-1] else " " * (self._widths[number] - _length(text)) + GAP
            parts += [(text, style), (gap, "")]
        click.echo(styled(parts).rstrip(), file=sys.stdout, color=True)


def _one_line(cell: Cell) -> str:
    """Return the text of a cell without line breaks and control characters."""
    text = cell if isinstance(cell, str) else cell[0]
    return text if text.isprintable() else " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str, room: int, where: Literal["", "start", "middle", "end"]) -> str:
    """Return a text of at most `room` columns; a longer one is cut at `where`, with a … there."""
    if _length(text) <= room or not where:
        return text
    kept = max(0, room - 1)
    head = {"start": 0, "middle": kept // 2, "end": kept}[where]
    return f"{_first(text, head)}…{_first(text[::-1], kept - head)[::-1]}"


def _first(text: str, room: int) -> str:
    """Return the first characters that fit into `room` columns."""
    text = text[:room]
    while _length(text) > room:
        text = text[:-1]
    return text


def _length(text: str) -> int:
    """Return the width of a text in columns: some characters take two, some none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
