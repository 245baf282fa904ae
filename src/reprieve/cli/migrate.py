"""`reprieve migrate`: show and apply the migrations of a store. Opening a store applies them as well."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.group import Group, examples
from reprieve.cli.store import choose, one_of, store_argument

if TYPE_CHECKING:  # settings are read when a command runs
    from reprieve.config import Settings

shared_option = click.option("--shared", is_flag=True, help="The store is in the database of an application.")


@click.group(cls=Group)
def migrate() -> None:
    """Show the schema version of a store, and migrate it."""


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
    """Show the schema version of the store, and that of this release. Nothing is created."""
    from reprieve.core.redact import mask_url
    from reprieve.stores.open import diagnostics_for

    settings = _settings(place, target, url)
    version = diagnostics_for(settings.url, shared=shared or settings.shared).schema_version()
    if as_json:
        output.print_json({"url": mask_url(settings.url), "schemaVersion": version, "isCurrent": version.is_current})
        return
    output.print_line((mask_url(settings.url), "bold"))
    missing, made_by = version.missing_functions, version.compatibility
    output.print_facts(
        [
            ("schema version", str(version.stored) if version.stored else "none yet"),
            ("this release", str(version.known)),
            *([("made by", f"Reprieve {made_by.migrated_by}")] if made_by else []),
            *([("used by", f"releases from {made_by.oldest_release} on")] if made_by else []),
            *([("missing", f"{missing} of this release's functions")] if missing else []),
            ("to do", "nothing" if version.is_current else "reprieve migrate up"),
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
    """Migrate the store to the schema version of this release; create the store if it is missing."""
    from reprieve.core.redact import mask_url
    from reprieve.stores.open import diagnostics_for

    settings = _settings(place, target, url)
    diagnostics = diagnostics_for(settings.url, shared=shared or settings.shared)
    before = diagnostics.schema_version()
    with output.working("migrating"):
        after = diagnostics.migrate()
    if as_json:
        output.print_json({"url": mask_url(settings.url), "before": before.stored, "after": after.stored})
    elif before.missing_functions:
        created = f"{before.missing_functions} of this release's functions were created"
        output.print_line(f"{mask_url(settings.url)} has schema version {after.stored}: {created}")
    elif after.stored > after.known and after.compatibility is not None:
        made_by = f"of Reprieve {after.compatibility.migrated_by}, a newer release"
        output.print_line(f"{mask_url(settings.url)} has schema version {after.stored} {made_by}: nothing to do")
    elif before == after:
        output.print_line(f"{mask_url(settings.url)} has schema version {after.stored}: nothing to do")
    else:
        output.print_line(
            f"{mask_url(settings.url)} has schema version {after.stored} now (before: {before.stored or 'none'})"
        )


@migrate.command()
@store_argument
@output.json_option
def sql(*, place: str | None, target: str | None, url: str | None, as_json: bool) -> None:
    """Print the SQL of every migration."""
    from reprieve.stores.open import diagnostics_for

    migrations = diagnostics_for(_settings(place, target, url).url).migrations()
    if as_json:
        output.print_json(migrations)
        return
    for step in migrations:
        click.echo(f"-- {step.name}\n{step.sql}")


def _settings(place: str | None, target: str | None, url: str | None) -> "Settings":
    return choose(target, one_of(place, url, "the store", "--store")).settings
