"""The report of `reprieve simulate`: one outage under several policies, decided by the production code."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from reprieve.core import presets
from reprieve.core.duration import spell
from reprieve.insight.outage import Report, Scenario, simulate

SIMULATED = (
    ("swift", False),
    ("smtp", False),
    ("email", False),
    ("bull", False),
    ("standard", False),
    ("email", True),
)
PLOT_SECONDS, COLUMN_SECONDS = 100, 2
"""How much time the plot shows, and how much of it is one column."""
BLOCKS = " ▁▂▃▄▅▆▇█"


def show(console: Console, *, jobs: int, seed: int) -> None:
    """Simulate the outage under several policies, and print the results."""
    scenario = Scenario(jobs=jobs, seed=seed)
    console.print(
        f"[bold]{jobs:,} queued jobs, and their dependency is down for {spell(scenario.down_for)}[/] "
        "(virtual time, decided by the production code)"
    )
    reports = []
    with console.status("simulating the outage") as status:
        for name, park in SIMULATED:
            status.update(f"simulating the outage with {_label(name, park=park)}")
            reports.append((_label(name, park=park), simulate(presets.ALL[name], scenario, park=park)))
    console.print(_table(reports, scenario))
    for line in _plot(reports, scenario):
        console.print(line, highlight=False, overflow="crop", no_wrap=True)


def _table(reports: list[tuple[str, Report]], scenario: Scenario) -> Table:
    table = Table("policy", "calls per job", "done", "dead", "over")
    for label, report in reports:
        colour = "red" if report.dead else "green"
        end = scenario.down_for + report.ended_after
        over = f"{spell(end)}: all dead" if not report.succeeded else f"{spell(report.ended_after)} after recovery"
        table.add_row(
            label,
            f"{report.calls / scenario.jobs:.2f}",
            f"{report.succeeded:,}",
            f"[{colour}]{report.dead:,}[/]",
            over,
        )
    return table


def _plot(reports: list[tuple[str, Report]], scenario: Scenario) -> Iterator[str]:
    width = max(len(label) for label, _ in reports)
    columns = [(label, _columns(report)) for label, report in reports]
    most = max(max(calls) for _, calls in columns)
    yield f"[bold]Calls per second[/], up to {most // COLUMN_SECONDS:,}"
    for label, calls in columns:
        yield f"{label:>{width}} [cyan]{_sparkline(calls, most)}[/]"
    down = round(scenario.down_for) // COLUMN_SECONDS
    yield " " * (width + 1) + f"[red]{'down':─^{down}}[/][green]{'back':─^{PLOT_SECONDS // COLUMN_SECONDS - down}}[/]"


def _columns(report: Report) -> list[int]:
    calls = [report.calls_by_second.get(second, 0) for second in range(PLOT_SECONDS)]
    return [sum(calls[start : start + COLUMN_SECONDS]) for start in range(0, PLOT_SECONDS, COLUMN_SECONDS)]


def _sparkline(calls: list[int], most: int) -> str:
    # Round up: a single call still shows.
    return "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // most)] for count in calls)


def _label(name: str, *, park: bool) -> str:
    return f"{name} + Park" if park else name
