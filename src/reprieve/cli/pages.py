"""The history of a job, printed."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from reprieve.cli import output
from reprieve.stores.protocol import FailureGroup
from reprieve.views.moments import both, clock_time
from reprieve.views.story import Step, What

STYLES: dict[What, str] = {
    "succeeded": "green",
    "failed": "yellow",
    "lost": "red",
    "died": "red",
    "cancelled": "dim",
    "retried": "cyan",
    "revived": "cyan",
    "stop_requested": "cyan",
}

FIRST_STEPS, LAST_STEPS = 5, 35
"""Steps of a long history that a terminal shows, from its beginning and from its end."""

MIN_FOLDED = 4
"""Consecutive attempts that must end alike before those between the first and the last are folded."""


class Folded(NamedTuple):
    """Consecutive attempts that ended alike, shown as one line."""

    steps: Sequence[Step]


def print_story(steps: Sequence[Step], now: int) -> None:
    """Print the steps of a history.

    Of attempts that ended alike, the first and the last are printed, and one line for those in between. On a terminal
    a long history is shortened in the middle.
    """
    entries = fold(steps)
    left_out = len(entries) - FIRST_STEPS - LAST_STEPS if output.is_terminal() else 0
    moments = [_moment(entry, now) for entry in entries]
    widths = (max(map(len, moments)),)
    for number, (entry, moment) in enumerate(zip(entries, moments, strict=True)):
        if left_out > 0 and number == FIRST_STEPS:
            output.print_line((f"… {left_out:,} more; --json has them all", "dim"))
        if left_out > 0 and FIRST_STEPS <= number < FIRST_STEPS + left_out:
            continue
        if isinstance(entry, Folded):
            output.print_row(widths, ((moment, "dim"), (_folded(entry, now), "dim")))
            continue
        output.print_row(widths, ((moment, "dim"), (entry.text, STYLES.get(entry.what, ""))))
        if entry.then:
            output.print_row(widths, ("", (f"→ {entry.then}", "red" if "died" in entry.then else "dim")))


def print_traceback(traceback: str) -> None:
    """Print a traceback below a history."""
    output.print_line("")
    output.print_text(traceback)


def print_failure_group(group: FailureGroup, now: int) -> None:
    """Print what all failures of a group look like."""
    output.print_line("")
    output.print_facts(
        [
            ("failures", group.template),
            ("first seen", both(group.first_seen_at, now)),
            ("last seen", both(group.last_seen_at, now)),
        ]
    )
    print_traceback(group.traceback)


def fold(steps: Sequence[Step]) -> list[Step | Folded]:
    """Return the steps with consecutive attempts that ended alike folded; the first and the last of them stay."""
    entries: list[Step | Folded] = []
    for _, group in groupby(steps, key=_kind):
        alike = list(group)
        if alike[0].attempt and len(alike) >= MIN_FOLDED:
            entries += [alike[0], Folded(alike[1:-1]), alike[-1]]
        else:
            entries += alike
    return entries


def _kind(step: Step) -> tuple[str, ...]:
    return (step.what, step.cost, step.code, step.reason, step.by)


def _moment(entry: Step | Folded, now: int) -> str:
    at = entry.steps[0].at if isinstance(entry, Folded) else entry.at
    return "" if at is None else clock_time(at, now)


def _folded(entry: Folded, now: int) -> str:
    first, last = entry.steps[0], entry.steps[-1]
    until = "" if last.at is None else f", until {clock_time(last.at, now)}"
    return f"attempts {first.attempt}–{last.attempt}: {len(entry.steps):,} more that ended like this{until}"
