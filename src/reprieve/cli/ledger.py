"""The ledger of `reprieve simulate`: an outage under several policies, played by the production decisions."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from reprieve.core import presets
from reprieve.core.duration import spell
from reprieve.insight.outage import Report, Scenario, play

PLAYED = (
    ("swift", False),
    ("smtp", False),
    ("email", False),
    ("bull", False),
    ("standard", False),
    ("email", True),
)
SHOWN, COLUMN = 100, 2
"""Seconds of the outage and what follows that the plot shows, and seconds of one column."""
BLOCKS = " ▁▂▃▄▅▆▇█"


def show(console: Console, *, jobs: int, seed: int) -> None:
    """Play the outage under several policies, and print what became of the jobs."""
    scenario = Scenario(jobs=jobs, seed=seed)
    console.print(
        f"[bold]{jobs:,} queued jobs, and their dependency is down for {spell(scenario.down_for)}[/] "
        "(virtual time, the decisions are the real ones)"
    )
    reports = []
    with console.status("playing the outage") as status:
        for name, park in PLAYED:
            status.update(f"playing the outage with {_label(name, park=park)}")
            reports.append((_label(name, park=park), play(presets.ALL[name], scenario, park=park)))
    console.print(_ledger(reports, scenario))
    for line in _plot(reports, scenario):
        console.print(line, highlight=False, overflow="crop", no_wrap=True)


def _ledger(reports: list[tuple[str, Report]], scenario: Scenario) -> Table:
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
    yield f"[bold]Calls per second[/], up to {most // COLUMN:,}"
    for label, calls in columns:
        yield f"{label:>{width}} [cyan]{_sparkline(calls, most)}[/]"
    down = round(scenario.down_for) // COLUMN
    yield " " * (width + 1) + f"[red]{'down':─^{down}}[/][green]{'back':─^{SHOWN // COLUMN - down}}[/]"


def _columns(report: Report) -> list[int]:
    calls = [report.calls_by_second.get(second, 0) for second in range(SHOWN)]
    return [sum(calls[start : start + COLUMN]) for start in range(0, SHOWN, COLUMN)]


def _sparkline(calls: list[int], most: int) -> str:
    # A single call still shows: what looks silent must be silent.
    return "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // most)] for count in calls)


def _label(name: str, *, park: bool) -> str:
    return f"{name} + Park" if park else name
