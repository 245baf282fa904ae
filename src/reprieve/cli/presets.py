"""`reprieve presets`: the named policies, as tables, numbers and charts."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.group import Group

if TYPE_CHECKING:  # the numbers come from the core, which help does not need
    from reprieve.cli.schedule import Schedule

PURPOSES = {
    "swift": "Three quick retries, for calls that a person waits for.",
    "patient": "Two retries minutes apart, for work that can wait.",
    "smtp": "E-mail over SMTP, in production.",
    "smtp_dev": "E-mail over SMTP, in development: the same shape with shorter waits.",
    "email": "E-mail through a gateway, for many tenants.",
    "render": "Pages rendered by a browser.",
    "screenshot": "Screenshots: five retries over an hour.",
    "pdf": "PDFs: two retries, 5 s apart.",
    "bull": 'What Bull\'s "exponential" with a delay of 1 s does: (2^k − 1) s.',
    "standard": "The default: ten attempts over half an hour on average and an hour at most, with full jitter.",
    "mta": "Mail transfer by RFC 5321, 4.5.4.1: after minutes, then every two hours, for five days.",
    "webhook": "Webhooks: from seconds to hours, over more than a day.",
}
"""What each preset is for; the same text as its docstring in core/presets.py."""


@click.group(cls=Group)
def presets() -> None:
    """Show the named policies."""


@presets.command("list")
@output.json_option
def list_presets(*, as_json: bool) -> None:
    """List every preset with its waits before jitter."""
    from reprieve.cli.schedule import spell_attempts, spell_waits
    from reprieve.core.duration import spell

    schedules = _schedules(())
    if as_json:
        output.print_json(schedules)
        return
    output.print_table(
        ("preset", "attempts", "waits before jitter", "in all"),
        [((each.name, "cyan"), spell_attempts(each), spell_waits(each), spell(each.total)) for each in schedules],
    )


@presets.command()
@click.argument("name")
@output.json_option
def show(name: str, *, as_json: bool) -> None:
    """Show one preset in numbers."""
    from reprieve.cli.schedule import spell_attempts
    from reprieve.core.duration import spell

    (schedule,) = _schedules((name,))
    if as_json:
        output.print_json(schedule)
        return
    output.print_line((schedule.name, "bold cyan"), f"  {schedule.purpose}")
    output.print_facts(
        [
            ("attempts", spell_attempts(schedule)),
            ("backoff", schedule.backoff),
            ("cap", "none" if schedule.cap is None else spell(schedule.cap)),
            ("jitter", schedule.jitter),
            ("deadline", "none" if schedule.deadline is None else f"{spell(schedule.deadline)} after enqueue"),
            ("in all", spell(schedule.total)),
        ]
    )
    sofar, rows = 0.0, []
    for wait in schedule.waits:
        sofar += wait.wait
        rows.append((str(wait.failures), *map(spell, (wait.wait, wait.earliest, wait.latest, sofar))))
    output.print_table(("failure", "wait", "earliest", "latest", "in all"), rows)


@presets.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@output.json_option
def plot(names: tuple[str, ...], *, as_json: bool) -> None:
    """Draw the waits of some presets, or of all, side by side.

    There is one bar for each failure, on a shared logarithmic scale. A bar is solid up to the earliest time of the
    retry, and light up to the latest: that is its jitter.
    """
    from reprieve.cli.plot import draw

    schedules = _schedules(names)
    if as_json:
        output.print_json(schedules)
        return
    for line in draw(schedules, output.width()):
        output.print_chart(line)


def _schedules(names: tuple[str, ...]) -> list["Schedule"]:
    """Return the schedules of the named presets, or of all."""
    from reprieve.cli.schedule import schedule_of
    from reprieve.core.presets import ALL, named

    return [schedule_of(named(name), name, PURPOSES.get(name, "")) for name in names or ALL]
