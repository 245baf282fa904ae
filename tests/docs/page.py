"""Reads tables and blocks out of the pages, for the tests that hold them against the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def text_of(name: str) -> str:
    """Return the text of a page, by its path from the root of the project."""
    return (ROOT / name).read_text("utf-8")


def table(text: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the one table that begins with these columns, each as a dictionary."""
    found = [rows for rows in _tables(text) if rows[0][: len(columns)] == list(columns)]
    assert len(found) == 1, f"{len(found)} tables begin with the columns {columns}"
    header, *rows = found[0]
    assert all(len(row) == len(header) for row in rows), "a row has more or fewer cells than the header"
    return [dict(zip(header, row, strict=True)) for row in rows]


def code(cell: str) -> list[str]:
    """Return what stands in backquotes in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def _tables(text: str) -> list[list[list[str]]]:
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [[_cells(line) for number, line in enumerate(block.splitlines()) if number != 1] for block in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
