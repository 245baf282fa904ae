"""What `reprieve demo` shows: presets, verdicts, and an outage played by the production decisions."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reprieve.core import presets
from reprieve.core.classify import classify
from reprieve.core.duration import spell
from reprieve.core.policy import Policy
from reprieve.insight.outage import Report, Scenario, play

ERRORS = (
    "421 4.3.2 service not available",
    "450 mailbox busy, try again in 5 minutes",
    "550 4.7.1 greylisted",
    "550 5.1.1 no such user",
    "554 transaction failed",
    "Throttling",
    "MessageRejected",
    "MailFromDomainNotVerified",
    "HTTP 503 Service Unavailable",
    "HTTP 429 Too Many Requests",
    "HTTP 404 Not Found",
    "Connection refused",
    "PermissionError",
)
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
    """Print the demo."""
    console.print(_schedules())
    console.print(_verdicts())
    scenario = Scenario(jobs=jobs, seed=seed)
    console.print(
        f"\n[bold]{jobs:,} queued jobs, and their dependency is down for {spell(scenario.down_for)}[/] "
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


def _schedules() -> Table:
    table = Table("preset", "attempts", "waits before jitter", "in all", title="Presets", box=SIMPLE_HEAD)
    for name, preset in presets.ALL.items():
        waits = [preset.delay(failures) for failures in range(1, preset.max_attempts or 6)]
        shown = ", ".join(map(spell, waits[:9])) + ("" if preset.max_attempts else ", …")
        table.add_row(name, str(preset.max_attempts or "∞"), shown, _total(preset, waits))
    return table


def _total(preset: Policy, waits: list[float]) -> str:
    return spell(sum(waits)) if preset.max_attempts or not preset.deadline else spell(preset.deadline)


def _verdicts() -> Table:
    colours = {"permanent": "red", "transient": "green", "throttled": "yellow"}
    table = Table("error", "verdict", "whose", "wait", "rule", title="Verdicts", box=SIMPLE_HEAD)
    for error in ERRORS:
        verdict = classify(error)
        colour = colours.get(verdict.kind, "cyan")
        wait = "" if verdict.retry_after is None else spell(verdict.retry_after)
        table.add_row(escape(error), f"[{colour}]{verdict.kind}[/]", verdict.scope, wait, verdict.rule)
    return table


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
    yield f"\n[bold]Calls per second[/], up to {most // COLUMN:,}"
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
