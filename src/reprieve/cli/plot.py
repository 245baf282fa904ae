"""Charts of waits: a bar for each failure on a logarithmic scale, several policies side by side."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from reprieve.cli.output import Cell
from reprieve.cli.schedule import Schedule
from reprieve.core.duration import spell

HEIGHT = 10
GAP = 3
MARGIN = 6
"""Columns of the scale on the left."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
_JITTER = "░"
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_TICKS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 86_400.0, 864_000.0)
_MIN_SECONDS = 0.01


class Scale:
    """A logarithmic axis of waits."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        """Fit the axis to the waits; the shortest still shows as a bar."""
        waits = [wait for schedule in schedules for wait in schedule.waits]
        low = math.log10(max(_MIN_SECONDS, min((wait.earliest for wait in waits), default=1.0))) - 0.3
        self._longest = max((wait.latest for wait in waits), default=1.0)
        high = math.log10(max(_MIN_SECONDS, self._longest))
        # An axis of less than a decade would exaggerate small differences.
        self._low, self._span = min(low, high - 1), max(1.0, high - low)

    def height(self, wait: float) -> float:
        """Return the height of a wait in rows, from 0 to HEIGHT."""
        share = (math.log10(max(_MIN_SECONDS, wait)) - self._low) / self._span
        return HEIGHT * min(1.0, max(0.0, share))

    def label(self, row: int) -> str:
        """Return the label of a row: a round wait that ends in it, if any; in the top row, the longest wait."""
        found = [tick for tick in _TICKS if row < self.height(tick) <= row + 1 and self._is_inside(tick)]
        if row == HEIGHT - 1:
            found = [self._longest]
        return spell(found[-1]) if found else ""

    def _is_inside(self, tick: float) -> bool:
        return self._low < math.log10(tick) < self._low + self._span


def draw(schedules: Sequence[Schedule], width: int) -> Iterator[list[Cell]]:
    """Yield the lines of a chart of the schedules on one scale, as many side by side as fit the width."""
    scale = Scale(schedules)
    for number, band in enumerate(_bands(schedules, width)):
        if number:
            yield [""]
        panels = [_panel(schedule, scale) for _, schedule in band]
        for row in range(HEIGHT - 1, -1, -1):
            yield _line(band, panels, HEIGHT - 1 - row, f"{scale.label(row):>{MARGIN - 2}} │")
        for footer in range(HEIGHT, len(panels[0])):
            yield _line(band, panels, footer, " " * MARGIN)


def _bands(schedules: Sequence[Schedule], width: int) -> Iterator[list[tuple[int, Schedule]]]:
    """Yield the schedules in rows of panels; one that is too wide gets its own row."""
    rows, row, used = [], 0, MARGIN
    for schedule in schedules:
        needed = GAP + _width(schedule)
        if used + needed > width and used > MARGIN:
            row, used = row + 1, MARGIN
        used += needed
        rows.append(row)
    numbered = zip(rows, enumerate(schedules), strict=True)
    for _, band in groupby(numbered, key=lambda entry: entry[0]):
        yield [entry for _, entry in band]


def _line(band: list[tuple[int, Schedule]], panels: list[list[str]], line: int, margin: str) -> list[Cell]:
    cells: list[Cell] = [(margin, "dim")]
    for (number, schedule), panel in zip(band, panels, strict=True):
        colour = _COLOURS[number % len(_COLOURS)] if line <= HEIGHT or line == len(panel) - 2 else "dim"
        cells.append((f"{panel[line]:<{_width(schedule) + GAP}}", colour))
    last = cells.pop()
    return [*cells, (last[0].rstrip(), last[1])]


def _panel(schedule: Schedule, scale: Scale) -> list[str]:
    """Return the lines of one schedule: its bars, the numbers of failures, its name and its total time."""
    levels = [(round(8 * scale.height(wait.earliest)), round(8 * scale.height(wait.latest))) for wait in schedule.waits]
    rows = [" ".join(_piece(low, high, row) for low, high in levels) for row in range(HEIGHT - 1, -1, -1)]
    numbers = " ".join(str(wait.failures % 10) for wait in schedule.waits)
    endless = " …" if schedule.max_attempts is None else ""
    return [*rows, numbers + endless, schedule.name, _total(schedule)]


def _piece(low: int, high: int, row: int) -> str:
    """Return one row of a bar: solid up to the earliest wait, light up to the latest; levels are eighths of a row."""
    solid = min(8, max(0, low - 8 * row))
    if solid:
        return _BLOCKS[solid]
    return _JITTER if high - 8 * row >= len(_BLOCKS) // 2 else " "


def _total(schedule: Schedule) -> str:
    return f"in {spell(schedule.total)}"


def _width(schedule: Schedule) -> int:
    bars = 2 * len(schedule.waits) - 1 + (2 if schedule.max_attempts is None else 0)
    return max(bars, len(schedule.name), len(_total(schedule)))
