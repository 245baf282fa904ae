"""`reprieve doctor`: what could go wrong on this machine and with its store, and how to mend it.

The checks of a store are in its own diagnostics; here are those of the machine, and how findings are shown.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.exit import FAILED
from reprieve.cli.group import examples
from reprieve.cli.store import choose, one_of, store_argument

if TYPE_CHECKING:  # stores are imported when the command runs
    from reprieve.stores.diagnostics import Finding

EXTRAS = {
    "uvloop": ("fast", "a faster event loop"),
    "psycopg": ("postgres", "PostgreSQL"),
    "redis": ("redis", "Redis"),
}
"""Optional packages: the extra that installs each, and what it is for."""

WIDTHS = (4, 12)
"""Columns of a finding's level and of its name: the longest is `transactions`."""

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@click.command(
    epilog=examples(
        "reprieve doctor --app shop:app",
        "reprieve doctor postgresql://app@db/jobs",
    )
)
@store_argument
@click.option("--shared", is_flag=True, help="The store stands in a database of an application.")
@output.json_option
@click.pass_context
def doctor(
    ctx: click.Context, *, place: str | None, target: str | None, url: str | None, shared: bool, as_json: bool
) -> None:
    """Examine this machine and its store.

    Each finding is ok, warn or bad, and says what to do. The status is 1 if anything is bad. Nothing is changed, and
    nothing is created.
    """
    findings = []
    for finding in _watched(_examine(target, one_of(place, url, "the store", "--store"), shared=shared)):
        findings.append(finding)
        if not as_json:
            _print(finding)
    is_well = all(finding.level != "bad" for finding in findings)
    if as_json:
        output.print_json({"isWell": is_well, "findings": findings})
    if not is_well:
        ctx.exit(FAILED)


def _watched(findings: Iterator["Finding"]) -> Iterator["Finding"]:
    """Show on the terminal that the next finding is looked for: reading every page of a large file takes a while."""
    while True:
        with output.working("looking"):
            finding = next(findings, None)
        if finding is None:
            return
        yield finding


def _examine(target: str | None, url: str | None, *, shared: bool) -> Iterator["Finding"]:
    from reprieve.clock import now
    from reprieve.core.redact import mask_url
    from reprieve.errors import ReprieveError
    from reprieve.stores.diagnostics import Finding, error_finding
    from reprieve.stores.open import diagnostics_for

    yield _python()
    yield from _extras()
    yield _clock(now())
    try:
        choice = choose(target, url)
        settings = choice.settings
        diagnostics = diagnostics_for(settings.url, shared=shared or settings.shared)
        whose = f", of the app {choice.target}" if choice.target and url is None else ""
        yield Finding(name="settings", level="ok", seen=f"the store is {mask_url(settings.url)}{whose}")
        # Read at the last moment: the store compares it with its own clock.
        yield from diagnostics.examine(now())
        if settings.outbox and url is None:
            yield from _outbox(settings.outbox)
    except ReprieveError as error:
        yield error_finding("settings", error, "fix it where it comes from: see reprieve config --help")


def _outbox(url: str) -> Iterator["Finding"]:
    """Look at the database of the outbox as well: at what lies there, and at whatever is not well."""
    from msgspec.structs import replace

    from reprieve.clock import now
    from reprieve.stores.open import diagnostics_for

    for finding in diagnostics_for(url, shared=True).examine(now()):
        if finding.name == "outbox":
            yield finding
        elif finding.level != "ok":
            yield replace(finding, seen=f"of the outbox: {finding.seen}")


def _python() -> "Finding":
    import platform

    from reprieve.stores.diagnostics import Finding

    return Finding(name="python", level="ok", seen=f"{platform.python_implementation()} {platform.python_version()}")


def _extras() -> Iterator["Finding"]:
    from importlib.metadata import PackageNotFoundError, version

    from reprieve.stores.diagnostics import Finding

    for package, (extra, purpose) in EXTRAS.items():
        try:
            yield Finding(name=package, level="ok", seen=version(package))
        except PackageNotFoundError:
            seen = f"not installed; for {purpose}: pip install 'reprieve[{extra}]'"
            yield Finding(name=package, level="ok", seen=seen)


def _clock(at: int) -> "Finding":
    """Compare the clock with the day on which this release was installed: nobody can run it before."""
    from datetime import UTC, datetime
    from pathlib import Path

    from reprieve.stores.diagnostics import Finding

    installed_at = int(Path(__file__).stat().st_mtime * 1_000)
    seen = f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if at >= installed_at - 86_400_000:
        return Finding(name="clock", level="ok", seen=seen)
    return Finding(
        name="clock", level="bad", seen=f"{seen}, before this release was installed", fix="set the clock, best by NTP"
    )


def _print(finding: "Finding") -> None:
    # A finding about one node of a Cluster names it; the column has room for the name of the finding alone.
    name, _, node = finding.name.partition(" of ")
    seen = f"{node}: {finding.seen}" if node else finding.seen
    output.print_row(WIDTHS, ((finding.level, STYLES[finding.level]), name, seen))
    if finding.fix:
        output.print_row(WIDTHS, ("", "", (f"→ {finding.fix}", "dim")))
