"""`reprieve migrate`: shows the schema version of a store and migrates it, as opening the store does."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.group import Group, examples
from reprieve.cli.store import choose, one_of, store_argument

if TYPE_CHECKING:  # settings are read when a command runs
    from reprieve.config import Settings

shared_option = click.option("--shared", is_flag=True, help="The store stands in a database of an application.")


@click.group(cls=Group)
def migrate() -> None:
    """Show the schema version of a store, and bring it up to date."""


@migrate.command(
    epilog=examples(
        "reprieve migrate status --app shop:app",
        "reprieve migrate status sqlite:///jobs.db",
    )
)
@store_argument
@shared_option
@output.json_option
def status(*, place: str | None, target: str | None, url: str | None, shared: bool, as_json: bool) -> None:
    """Show the schema version of the store, and the one that this release knows. Nothing is created."""
    from reprieve.core.redact import mask_url
    from reprieve.stores.open import diagnostics_for

    settings = _settings(place, target, url)
    version = diagnostics_for(settings.url, shared=shared or settings.shared).schema_version()
    if as_json:
        output.print_json(
            {"url": mask_url(settings.url), "schema": version, "isCurrent": version.stored == version.known}
        )
        return
    output.print_line((mask_url(settings.url), "bold"))
    output.print_facts(
        [
            ("schema version", str(version.stored) if version.stored else "none yet"),
            ("this release", str(version.known)),
            ("to do", "nothing" if version.stored == version.known else "reprieve migrate up"),
        ]
    )


@migrate.command(
    epilog=examples(
        "reprieve migrate up --app shop:app",
    )
)
@store_argument
@shared_option
@output.json_option
def up(*, place: str | None, target: str | None, url: str | None, shared: bool, as_json: bool) -> None:
    """Bring the schema up to date; create the store if it is missing."""
    from reprieve.core.redact import mask_url
    from reprieve.stores.open import diagnostics_for

    settings = _settings(place, target, url)
    diagnostics = diagnostics_for(settings.url, shared=shared or settings.shared)
    before = diagnostics.schema_version()
    with output.working("bringing the schema up to date"):
        after = diagnostics.migrate()
    shown = mask_url(settings.url)
    if as_json:
        output.print_json({"url": shown, "before": before.stored, "after": after.stored})
    elif before == after:
        output.print_line(f"{shown} has schema version {after.stored}: nothing to do")
    else:
        output.print_line(f"{shown} has schema version {after.stored} now, before: {before.stored or 'none'}")


@migrate.command()
@store_argument
@output.json_option
def sql(*, place: str | None, target: str | None, url: str | None, as_json: bool) -> None:
    """Print the SQL of every step, to be read or to be run by hand."""
    from reprieve.stores.open import diagnostics_for

    migrations = diagnostics_for(_settings(place, target, url).url).migrations()
    if as_json:
        output.print_json(migrations)
        return
    for step in migrations:
        click.echo(f"-- {step.name}\n{step.sql}")


def _settings(place: str | None, target: str | None, url: str | None) -> "Settings":
    return choose(target, one_of(place, url, "the store", "--store")).settings
