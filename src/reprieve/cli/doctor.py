"""`reprieve doctor`: check this machine and its store, and say how to fix problems.

The checks of a store are in its package; this module checks the machine and prints the findings.
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
"""Widths of a finding's level and of its name: the longest is `transactions`."""

STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


@click.command(
    epilog=examples(
        "reprieve doctor --app shop:app",
        "reprieve doctor postgresql://app@db/jobs",
    )
)
@store_argument
@click.option("--shared", is_flag=True, help="The store is in the database of an application.")
@output.json_option
@click.pass_context
def doctor(
    ctx: click.Context, *, place: str | None, target: str | None, url: str | None, shared: bool, as_json: bool
) -> None:
    """Check this machine and its store.

    Each finding is ok, warn or bad, and says what to do. The status is 1 if a finding is bad. Nothing is changed or
    created.
    """
    findings = []
    for finding in _with_spinner(_examine(target, one_of(place, url, "the store", "--store"), shared=shared)):
        findings.append(finding)
        if not as_json:
            _print(finding)
    is_healthy = all(finding.level != "bad" for finding in findings)
    if as_json:
        output.print_json({"isHealthy": is_healthy, "findings": findings})
    if not is_healthy:
        ctx.exit(FAILED)


def _with_spinner(findings: Iterator["Finding"]) -> Iterator["Finding"]:
    """Yield the findings, with a spinner on a terminal: checking a large file takes a while."""
    while True:
        with output.working("checking"):
            finding = next(findings, None)
        if finding is None:
            return
        yield finding


def _examine(target: str | None, url: str | None, *, shared: bool) -> Iterator["Finding"]:
    from reprieve.clock import now
    from reprieve.core.redact import mask_url
    from reprieve.errors import ReprieveError
    from reprieve.stores.diagnostics import Finding
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
        # Read the clock as late as possible: the store compares it with its own.
        yield from diagnostics.examine(now())
        if settings.outbox and url is None:
            yield from _outbox(settings.outbox)
    except ReprieveError as error:
        seen, _, fix = str(error).partition("; ")
        yield Finding(
            name="settings",
            level="bad",
            seen=seen,
            fix=fix or "change it at its source: see reprieve config",
        )


def _outbox(url: str) -> Iterator["Finding"]:
    """Yield the findings about the outbox, and those about its database that are not ok."""
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
    """Return a finding about the clock: it cannot be before the installation of this release."""
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
    # A finding about one node of a Cluster names the node; the column has room only for the finding's name.
    name, _, node = finding.name.partition(" of ")
    seen = f"{node}: {finding.seen}" if node else finding.seen
    output.print_row(WIDTHS, ((finding.level, STYLES[finding.level]), name, seen))
    if finding.fix:
        output.print_row(WIDTHS, ("", "", (f"→ {finding.fix}", "dim")))
