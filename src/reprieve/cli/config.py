"""`reprieve config`: every effective setting, and where it comes from."""

from typing import TYPE_CHECKING

import click

from reprieve.cli import output
from reprieve.cli.exit import one_line
from reprieve.cli.group import examples
from reprieve.cli.store import app_option

if TYPE_CHECKING:  # settings are read when the command runs
    from reprieve.cli.schedule import Schedule
    from reprieve.config import Loaded, Settings
    from reprieve.core.rule import Rule


@click.command(epilog=examples("reprieve config", "reprieve config --app shop:app --json"))
@app_option
@output.json_option
def config(*, target: str | None, as_json: bool) -> None:
    """Show every setting, and where it comes from.

    In order of precedence: what the code of the app sets, the environment (REPRIEVE_URL, REPRIEVE_SLOTS and so on),
    reprieve.toml, [tool.reprieve] in pyproject.toml, the defaults. REPRIEVE_CONFIG names a file to read instead of both
    files. Passwords are hidden.
    """
    from msgspec.structs import fields

    from reprieve.config import Settings, load

    loaded = _with_app(load(), target)
    if as_json:
        names = {field.name: field.encode_name for field in fields(Settings)}
        output.print_json(
            {
                names[name]: {"value": _value(loaded.settings, name), "source": source}
                for name, source in loaded.sources.items()
            }
        )
        return
    output.print_table(
        ("setting", "value", "source"),
        [
            ((name, "cyan"), _text(loaded.settings, name), (source, "dim" if source == "default" else "green"))
            for name, source in loaded.sources.items()
        ],
    )


def _with_app(loaded: "Loaded", target: str | None) -> "Loaded":
    """Return the settings with those that the app's code sets; print a note if a configured app cannot be imported."""
    from reprieve.config import Loaded
    from reprieve.errors import ReprieveError
    from reprieve.worker import target as targets

    wanted = target or loaded.settings.app
    if not wanted:
        return loaded
    try:
        settings = targets.load(wanted).settings
    except ReprieveError as error:
        if target:
            raise
        click.echo(one_line(f"the settings in the code of {wanted} are not shown: {error}"), err=True)
        return loaded
    changed = {name: wanted for name in loaded.sources if getattr(settings, name) != getattr(loaded.settings, name)}
    return Loaded(settings, loaded.sources | changed)


def _value(settings: "Settings", name: str) -> object:
    """Return a setting for JSON: durations in seconds, policies as numbers."""
    from reprieve.core.redact import mask_url

    match name:
        case "url" | "outbox":
            return mask_url(getattr(settings, name))
        case "rules":
            return [_facts(rule) for rule in settings.rules]
        case "policies":
            return {schedule.name: schedule for schedule in _policies(settings)}
        case _:
            return getattr(settings, name)


def _text(settings: "Settings", name: str) -> str:
    """Return a setting as people write it."""
    from reprieve.cli.schedule import spell_attempts, spell_waits
    from reprieve.core.duration import spell

    match name:
        case "rules":
            lines = [f"{rule} is {rule.kind or 'not reclassified'}" for rule in settings.rules]
        case "policies":
            lines = [
                f"{each.name}: {spell_attempts(each)} attempts, waits {spell_waits(each)}"
                for each in _policies(settings)
            ]
        case _:
            value = _value(settings, name)
            return spell(value) if isinstance(value, float) else str(value) or "none"
    return "\n".join(lines) or "none"


def _policies(settings: "Settings") -> list["Schedule"]:
    from reprieve.cli.schedule import schedule_of

    return [schedule_of(policy, task) for task, policy in settings.policies.items()]


def _facts(rule: "Rule") -> dict[str, object]:
    """Return the fields of a rule of the configuration; such a rule has no backoff."""
    facts = {
        "code": rule.code,
        "exception": rule.exception,
        "message": rule.message,
        "dependency": rule.dependency,
        "kind": rule.kind,
        "scope": rule.scope,
        "retryAfter": rule.retry_after,
        "maxAttempts": rule.max_attempts,
        "isUnavailable": rule.is_unavailable or None,
    }
    return {name: value for name, value in facts.items() if value not in ("", None)}
