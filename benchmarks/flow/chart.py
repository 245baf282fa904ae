"""The chart: each figure as bars, in the terminal and as an SVG. Bars of one figure share a scale, figures do not."""

from xml.sax.saxutils import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.flow.figure import Figure
from benchmarks.flow.record import Record

OURS = "reprieve"
BAR = 32
GREEN, GREY = "#2f6f4f", "#b0a99f"
WIDTH, LEFT, LENGTH, ROW, GAP = 760, 270, 330, 15, 12


def show(record: Record, console: Console) -> None:
    """Print the bars."""
    table = Table.grid(padding=(0, 1))
    for figure in _drawn(record):
        for number, (side, value) in enumerate(_values(record, figure)):
            bar = Text("█" * max(1, round(BAR * _share(record, figure, value))), style=_colour(side))
            label = f"{figure.title}" if number == 0 else ""
            table.add_row(label, side, bar, f"{figure.show(value)} {figure.unit}")
    console.print(table)


def draw(record: Record, title: str, caption: str) -> str:
    """Return the bars as an SVG, with a line where the promise is."""
    parts: list[str] = []
    top = 44
    for figure in _drawn(record):
        begun = top
        for side, value in _values(record, figure):
            length = max(1.0, LENGTH * _share(record, figure, value))
            parts.append(f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{ROW - 3}" fill="{_colour(side)}"/>')
            words = f"{figure.show(value)} {figure.unit} {side}"
            parts.append(_text(LEFT + length + 6, top + ROW - 5, words))
            top += ROW
        parts.append(_text(LEFT - 8, begun + ROW - 5, figure.title, "end"))
        if figure.target:
            place = LEFT + LENGTH * _share(record, figure, figure.target)
            parts.append(
                f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{begun - 3}" y2="{top}" stroke="#c0392b" '
                'stroke-dasharray="3 2"/>'
            )
        top += GAP
    heading = _text(16, 20, f"{title}; the red line is the target")
    notes = _text(16, top + 8, caption)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 20}" font-family="sans-serif">'
    ground = f'<rect width="{WIDTH}" height="{top + 20}" fill="#ffffff"/>'
    return "\n".join([head, ground, heading, *parts, notes, "</svg>", ""])


def _drawn(record: Record) -> list[Figure]:
    """Return the figures that make bars: those with a promise, of which one side has more than nothing."""
    return [
        figure
        for figure in record.figures()
        if figure.target and any(value > 0 for _, value in _values(record, figure))
    ]


def _values(record: Record, figure: Figure) -> list[tuple[str, float]]:
    found = ((side, record.value(side, figure)) for side in record.sides())
    return [(side, value) for side, value in found if value is not None]


def _colour(side: str) -> str:
    return GREEN if side == OURS else GREY


def _share(record: Record, figure: Figure, value: float) -> float:
    longest = max([figure.target or 0.0, *(value for _, value in _values(record, figure))])
    return max(0.0, value) / longest


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="#222222" text-anchor="{anchor}">{escape(words)}</text>'
