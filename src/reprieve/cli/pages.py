"""The story of a job, printed."""

from collections.abc import Sequence

from reprieve.cli import output
from reprieve.cli.moments import clock_time
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

FIRST, LAST = 5, 35
"""Steps of a long story that a terminal shows, from its beginning and from its end."""


def print_story(steps: Sequence[Step], now: int) -> None:
    """Print what happened, one step after the other; on a terminal a long story is shortened in the middle."""
    left_out = len(steps) - FIRST - LAST if output.is_terminal() else 0
    moments = ["" if step.at is None else clock_time(step.at, now) for step in steps]
    widths = (max(map(len, moments)),)
    for number, (step, moment) in enumerate(zip(steps, moments, strict=True)):
        if left_out > 0 and number == FIRST:
            output.print_line((f"… {left_out:,} more; --json has them all", "dim"))
        if left_out <= 0 or not FIRST <= number < FIRST + left_out:
            output.print_row(widths, ((moment, "dim"), (step.text, STYLES.get(step.what, ""))))
            if step.then:
                output.print_row(widths, ("", (f"→ {step.then}", "red" if "died" in step.then else "dim")))
