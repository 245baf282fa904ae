"""`reprieve migrate`: the layout of a store. Opening a store brings it up to date as well; this says so, or does it."""

import click

from reprieve.cli import output
from reprieve.cli.group import Group
from reprieve.cli.store import settings_for, store_argument

shared_option = click.option("--shared", is_flag=True, help="The store stands in a database of an application.")


@click.group(cls=Group)
def migrate() -> None:
    """Look at the layout of a store, and bring it up to date."""


@migrate.command()
@store_argument
@shared_option
@output.json_option
def status(url: str | None, *, shared: bool, as_json: bool) -> None:
    """Say which layout the store has, and which this release knows."""
    from reprieve.stores.open import care_for
    from reprieve.stores.url import masked

    settings = settings_for(url)
    target = settings.url
    layout = care_for(target, shared=shared or settings.shared).layout()
    if as_json:
        output.print_json({"url": masked(target), "layout": layout, "isCurrent": layout.stored == layout.known})
        return
    output.print_line((masked(target), "bold"))
    output.print_facts(
        [
            ("layout", str(layout.stored) if layout.stored else "none yet"),
            ("this release", str(layout.known)),
            ("to do", "nothing" if layout.stored == layout.known else "reprieve migrate up"),
        ]
    )


@migrate.command()
@store_argument
@shared_option
@output.json_option
def up(url: str | None, *, shared: bool, as_json: bool) -> None:
    """Bring the layout up to date; make the store if it is missing."""
    from reprieve.stores.open import care_for
    from reprieve.stores.url import masked

    settings = settings_for(url)
    target = settings.url
    care = care_for(target, shared=shared or settings.shared)
    before = care.layout()
    with output.working("bringing the layout up to date"):
        after = care.migrate()
    if as_json:
        output.print_json({"url": masked(target), "before": before.stored, "after": after.stored})
    elif before == after:
        output.print_line(f"{masked(target)} has layout {after.stored}: nothing to do")
    else:
        output.print_line(f"{masked(target)} has layout {after.stored} now, after {before.stored or 'none'}")


@migrate.command()
@store_argument
@output.json_option
def sql(url: str | None, *, as_json: bool) -> None:
    """Print the SQL of every step, to be read or to be run by hand."""
    from reprieve.stores.open import care_for

    migrations = care_for(settings_for(url).url).migrations()
    if as_json:
        output.print_json(migrations)
        return
    for step in migrations:
        click.echo(f"-- {step.name}\n{step.sql}")
