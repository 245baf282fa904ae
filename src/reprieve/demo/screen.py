"""The screen of the demo: a live table on a terminal, plain lines everywhere else."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reprieve.demo.scene import STATUSES, Ending, Scene

COLOURS = {
    "ready": "cyan",
    "scheduled": "blue",
    "retrying": "yellow",
    "parked": "magenta",
    "running": "bright_white",
    "succeeded": "green",
    "dead": "red",
    "healthy": "green",
    "brown-out": "yellow",
    "down": "red",
    "open": "green",
    "held": "red",
    "probing": "yellow",
}
BARS = " ▁▂▃▄▅▆▇█"
CHART_COLUMNS = 60
"""Columns of the chart of calls, one per scene."""

PRINT_SECONDS = 2.0
"""The interval between lines where there is no terminal."""


class Screen:
    """Shows scenes and lines as they come."""

    def __init__(self, console: Console) -> None:
        """Create a screen on a console."""
        self._console = console
        self._live: Live | None = None
        self._scene: Scene | None = None
        self._lines: deque[str] = deque(maxlen=7)
        self._calls: deque[int] = deque([0], maxlen=CHART_COLUMNS + 1)
        self._printed_at = -PRINT_SECONDS

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show a live table inside this context, if the console is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, get_renderable=self._render) as self._live:
            yield

    def tell(self, line: str) -> None:
        """Show a line about what has just happened."""
        stamp = f"{self._scene.seconds if self._scene else 0.0:5.1f} s"
        self._lines.append(f"{stamp}  {line}")
        if self._live is None:
            self._console.print(f"{stamp}  {line}", markup=False, highlight=False, soft_wrap=True)

    def show(self, scene: Scene) -> None:
        """Show a scene."""
        self._scene = scene
        self._calls.append(scene.calls)
        if self._live is None and scene.seconds - self._printed_at >= PRINT_SECONDS:
            self._printed_at = scene.seconds
            counts = "  ".join(f"{status} {scene.count(status)}" for status in STATUSES)
            line = f"{scene.seconds:5.1f} s  provider {scene.health}  gate {scene.gate}  {counts}"
            self._console.print(line, highlight=False, soft_wrap=True)

    def close(self, ending: Ending) -> None:
        """Show the totals at the end."""
        table = Table(box=SIMPLE_HEAD, show_header=False, title="Results", title_justify="left")
        table.add_column(justify="right")
        table.add_column()
        for total, meaning in _totals(ending):
            table.add_row(total, meaning)
        self._console.print(table)

    def _render(self) -> Group:
        scene = self._scene
        if scene is None:
            return Group(Text("starting the worker …"))
        table = Table("tenant", box=SIMPLE_HEAD)
        for status in STATUSES:
            table.add_column(f"[{COLOURS[status]}]{status}[/]", justify="right")
        for tenant, counts in scene.tenants.items():
            table.add_row(tenant, *(_number(counts.get(status, 0)) for status in STATUSES))
        head = (
            f"{scene.seconds:5.1f} s   provider [{COLOURS[scene.health]}]{scene.health}[/]   "
            f"gate [{COLOURS[scene.gate]}]{scene.gate}[/]   calls {scene.calls:,}"
        )
        lines = [Text.from_markup(escape(line)) for line in self._lines]
        return Group(Text.from_markup(head), table, Text(f"calls  {self._bars()}", style="cyan"), Text(), *lines)

    def _bars(self) -> str:
        calls = list(self._calls)
        steps = [after - before for before, after in pairwise(calls)]
        highest = max([*steps, 1])
        return "".join(BARS[-(-step * (len(BARS) - 1) // highest)] for step in steps)


def _number(count: int) -> str:
    return f"{count:,}" if count else "[dim]·[/]"


def _totals(ending: Ending) -> Iterator[tuple[str, str]]:
    yield f"{ending.jobs:,}", f"jobs, in {ending.attempts:,} attempts and {ending.calls:,} calls"
    yield f"[green]{ending.succeeded:,}[/]", "succeeded"
    yield f"{ending.retried:,}", "were retried after a failure of their own"
    yield f"{ending.parked:,}", "waited for the provider without using up an attempt"
    yield f"{ending.came_back:,}", "were dead and succeeded after a manual retry"
    yield f"{ending.sent_again:,}", "were sent again after the kill, and recognised by their Message-ID"
    for count, word in ((ending.dead, "dead"), (ending.lost, "lost"), (ending.doubled, "doubled")):
        colour = "red" if count else "green"
        yield f"[{colour}]{count}[/]", word
    yield f"{ending.seconds:.1f} s", "in all"
