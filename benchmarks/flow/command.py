"""End to end, with real processes: `python -m benchmarks flow`.

Every figure is the median of some runs, in which the sides take turns. What they are and how they are taken stands in
docs/reference/speed.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.flow import chart, machine, side
from benchmarks.flow.chart import OURS
from benchmarks.flow.home import Home, PostgresHome, RedisHome, SqliteHome
from benchmarks.flow.measure import EVERYDAY, MEASURES, QUICK, Sizes
from benchmarks.flow.record import Record
from benchmarks.flow.side import Side

RESULTS = side.ROOT / "benchmarks" / "results"
WIDTH = 80
WIDTH_OF_SIDE = 16
"""Columns below which the table would break its lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the results."""
    wanted = _parse(arguments)
    with _home(wanted.store) as home:
        _measure(wanted, home)


def _measure(wanted: argparse.Namespace, home: Home) -> None:
    sides = []
    for known in side.sides(home.name, wanted.sides, wanted.threads):
        if known.is_here:
            sides.append(known)
        else:
            print(f"{known.name} is not here: `make {known.environment}` installs it", file=sys.stderr)
    with home.empty() as place:
        # A peer may make its store when its module is imported, so even this question needs a place.
        versions = {known.name: known.ask(place, "versions") for known in sides}
    here = machine.facts()
    if here.load > here.cores / 2:
        print(f"this machine is busy, load {here.load} on {here.cores} cores: rates mean little", file=sys.stderr)
    facts: dict[str, object] = {
        "command": _command(wanted, home),
        "commit": machine.commit(),
        "runs": wanted.runs,
        "machine": asdict(here),
        "server": home.server,
        "versions": versions,
        "workers": {known.name: [Path(known.program).name, *known.commands(1)[0][1:]] for known in sides},
    }
    record = Record(home.name, facts)
    measure_all(record, sides, home, wanted.only, wanted.runs, QUICK if wanted.quick else Sizes())
    console = Console(width=max(Console().width, WIDTH + WIDTH_OF_SIDE * len(sides)))
    console.print(tabulate(record, home.title))
    chart.show(record, console)
    if wanted.output is not None:
        record.save(wanted.output / f"{home.name}.json")
        title = f"{', '.join(record.sides())} on {home.title}"
        caption = f"median of {wanted.runs}; {here.cores} cores, load {here.load} when it began"
        (wanted.output / f"{home.name}.svg").write_text(chart.draw(record, title, caption), "utf-8")


@contextmanager
def _home(store: str) -> Iterator[Home]:
    """Return where the stores live; a server is started, as the tests do, unless a URL names one."""
    if store == "sqlite":
        yield SqliteHome()
        return
    kind, is_url = ("redis" if store.startswith("redis") else "postgres"), "://" in store
    with nullcontext(store) if is_url else import_module(f"tests.servers.{kind}").running() as url:
        yield RedisHome(url) if kind == "redis" else PostgresHome(url)


def measure_all(
    record: Record, sides: Sequence[Side], home: Home, measures: Sequence[str], runs: int, sizes: Sizes
) -> None:
    """Let the sides take turns, measure by measure and run by run, and say on standard error how far we are."""
    turns = [
        (run, name, known)
        for name in measures
        for run in range(1, runs + 1)
        for known in (sides if run % 2 else reversed(sides))
        if name not in known.lacks
    ]
    for number, (run, name, known) in enumerate(turns, 1):
        print(f"[{number}/{len(turns)}] {name}, run {run}: {known.name}", file=sys.stderr, flush=True)
        record.add(known.name, MEASURES[name](known, sizes, home))


def tabulate(record: Record, title: str) -> Table:
    """Make the table: what we found and promise, the peers, and how many times better we are than the best of them."""
    peers = [name for name in record.sides() if name != OURS]
    table = Table("", "", "Reprieve", "target", "", *peers, "to the best", title=title)
    for column in (*table.columns[2:4], *table.columns[5:]):
        column.justify = "right"
    for figure in record.figures():
        ours = record.value(OURS, figure)
        ratios = [ratio for name in peers if (ratio := record.ratio(OURS, name, figure)) is not None]
        is_met = None if ours is None else figure.is_met(ours)
        table.add_row(
            figure.title,
            figure.unit,
            figure.show(ours),
            figure.show_target(),
            "" if is_met is None else "✓" if is_met else "✗",
            *(figure.show(record.value(name, figure)) for name in peers),
            f"{min(ratios):.1f}×" if ratios and figure.unit != "×" else "",
        )
    return table


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks flow", description=__doc__)
    parser.add_argument("--only", type=_names, default=EVERYDAY, help=f"some of {', '.join(MEASURES)}")
    parser.add_argument(
        "--large", action="store_true", help="a million jobs, ten thousand tenants and eight processes as well: minutes"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs that each figure is the median of")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; figures mean nothing")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres, redis, or a URL of one of the last two")
    parser.add_argument("--sides", type=_words, default=(), help="some of the sides; all unless given")
    parser.add_argument("--threads", type=int, default=side.THREADS, help="threads of huey at its best")
    parser.add_argument("--output", type=Path, help="where results go; benchmarks/results after a full measurement")
    wanted = parser.parse_args(arguments)
    if wanted.large and "large" not in wanted.only:
        wanted.only = (*wanted.only, "large")
    if wanted.output is None and not wanted.quick and not wanted.sides and set(wanted.only) >= set(EVERYDAY):
        wanted.output = RESULTS
    return wanted


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - MEASURES.keys():
        message = f"there is no measure {', '.join(sorted(unknown))}; they are {', '.join(MEASURES)}"
        raise argparse.ArgumentTypeError(message)
    return names


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _command(wanted: argparse.Namespace, home: Home) -> str:
    """Write what was asked for, without the places of this machine."""
    words = ["python -m benchmarks flow", f"--only {','.join(wanted.only)}", f"--runs {wanted.runs}"]
    if home.name != "sqlite":
        words.append(f"--store {home.name}")
    if wanted.sides:
        words.append(f"--sides '{','.join(wanted.sides)}'")
    if wanted.quick:
        words.append("--quick")
    if home.name == "sqlite":
        words.append(f"--threads {wanted.threads}")
    return " ".join(words)
