"""Draw docs/learn/backoffs.svg, the waits of some presets: `python -m scripts.backoffs`."""

import math
from pathlib import Path

from reprieve.cli.schedule import Schedule, schedule_of
from reprieve.core import presets
from reprieve.core.duration import spell

FILE = Path(__file__).parents[1] / "docs" / "learn" / "backoffs.svg"
SHOWN = {"email": "#0b7285", "screenshot": "#a61e4d", "standard": "#2b8a3e", "webhook": "#5f3dc4"}
TICKS = (1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0)
WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 100, 20, 50
LOWEST, HIGHEST = 0.7, 45_000.0
"""Seconds at the lower and the upper end of the scale."""
FAILURES = 9


def draw() -> str:
    """Return the picture."""
    schedules = [schedule_of(presets.ALL[name], name) for name in SHOWN]
    parts = [_grid(), *(_band(each) for each in schedules), *(_line(each) for each in schedules)]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<title>Waits after each failure</title>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _grid() -> str:
    lines = []
    for tick in TICKS:
        y = _y(tick)
        lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>')
        lines.append(_text(LEFT - 8, float(y) + 4, spell(tick), anchor="end"))
    lines += [_text(_x(failures), HEIGHT - BOTTOM + 20, str(failures)) for failures in range(1, FAILURES + 1)]
    lines.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "failures so far"))
    return "\n".join(lines)


def _band(schedule: Schedule) -> str:
    """Draw the range that chance chooses from."""
    lows = [f"{_x(wait.failures)},{_y(wait.earliest)}" for wait in schedule.waits]
    highs = [f"{_x(wait.failures)},{_y(wait.latest)}" for wait in reversed(schedule.waits)]
    return f'<polygon points="{" ".join(lows + highs)}" fill="{SHOWN[schedule.name]}" fill-opacity="0.15"/>'


def _line(schedule: Schedule) -> str:
    """Draw the waits before jitter, with the name at the end."""
    colour = SHOWN[schedule.name]
    points = " ".join(f"{_x(wait.failures)},{_y(wait.wait)}" for wait in schedule.waits)
    last = schedule.waits[-1]
    name = _text(float(_x(last.failures)) + 8, float(_y(last.wait)) + 4, schedule.name, anchor="start", fill=colour)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>\n{name}'


def _x(failures: int) -> str:
    return f"{LEFT + 20 + (failures - 1) * (WIDTH - LEFT - RIGHT - 40) / (FAILURES - 1):.1f}"


def _y(wait: float) -> str:
    share = math.log(wait / LOWEST) / math.log(HIGHEST / LOWEST)
    return f"{HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM):.1f}"


def _text(x: float | str, y: float, words: str, *, anchor: str = "middle", fill: str = "#222222") -> str:
    return f'<text x="{float(x):.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


if __name__ == "__main__":
    FILE.write_text(draw(), "utf-8")
