"""`reprieve classify`: the verdict on an error, and the decision that would follow."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.store import app_option

if TYPE_CHECKING:  # the core is imported when the command runs
    from reprieve.cli.judgement import Judgement
    from reprieve.core.policy import Policy
    from reprieve.core.rule import Rule, Rules

TABLES = ("smtp", "ses", "http")
COLOURS = {"transient": "green", "throttled": "yellow", "unknown": "cyan", "permanent": "red", "poison": "red"}
KINDS = {
    "transient": "passes by itself",
    "throttled": "asks us to slow down",
    "unknown": "retried, and not counted against the dependency",
    "permanent": "never passes",
    "poison": "kills its worker",
}
SCOPES = {
    "job": "only this job fails",
    "tenant": "all jobs of the tenant fail",
    "dependency": "all jobs that call it fail",
}


def _tables(_: click.Context, __: click.Parameter, names: str | None) -> tuple[str, ...] | None:
    chosen = None if names is None else tuple(name.strip() for name in names.split(","))
    for name in chosen or ():
        if name not in TABLES:
            message = f"a table must be one of {', '.join(TABLES)}, got {name!r}"
            raise click.BadParameter(message)
    return chosen


@click.command(
    epilog=examples(
        'reprieve classify "550 5.1.1 no such user"',
        'reprieve classify "451 4.7.1 greylisted" --policy email',
        'reprieve classify "connection refused" --task send_welcome --app shop:app',
    )
)
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.option(
    "--rules",
    "tables",
    metavar="TABLES",
    callback=_tables,
    help=f"The tables to try, in this order, such as http,smtp. [default: {','.join(TABLES)}]",
)
@click.option("--dependency", metavar="NAME", help="The dependency that the job was calling.")
@click.option("--policy", "preset", metavar="PRESET", help="Decide by this preset, such as email or webhook.")
@click.option("--task", metavar="TASK", help="Decide by the policy and dependency of this task of the app.")
@app_option
@output.json_option
def classify(  # noqa: PLR0913 - one parameter per option
    *,
    texts: tuple[str, ...],
    tables: tuple[str, ...] | None,
    dependency: str | None,
    preset: str | None,
    task: str | None,
    target: str | None,
    as_json: bool,
) -> None:
    """Classify an error, and show what would follow.

    Each TEXT is one error, so quote it: reprieve classify "550 5.1.1 no such user". A dash reads errors from standard
    input, one per line. Rules in reprieve.toml take precedence over the tables. The default policy decides, unless
    --policy or --task names another.
    """
    from reprieve.cli.judgement import judge_text
    from reprieve.clock import now
    from reprieve.core.policy import amend

    if preset is not None and task is not None:
        message = "--policy and --task exclude each other; give one of them"
        raise click.UsageError(message, click.get_current_context())
    chosen = _of_preset(preset) if task is None else _of_task(task, target)
    policy = chosen.policy if tables is None else amend(chosen.policy, rules=(*chosen.operator, *_named(tables)))
    called = chosen.dependency if dependency is None else dependency
    at = now()
    judgements = [judge_text(text, chosen.name, policy, called, at) for text in _lines(texts)]
    if as_json:
        output.print_json(judgements)
        return
    for each in judgements:
        _print(each)


class _Chosen(NamedTuple):
    """The policy that decides, with its name."""

    name: str
    policy: "Policy"
    operator: "Sequence[Rule]"
    """The rules of the configuration, which take precedence over all others."""
    dependency: str = ""


def _of_preset(preset: str | None) -> _Chosen:
    """Return a preset, by default the policy of tasks that have none."""
    from reprieve.config import load
    from reprieve.core.policy import amend
    from reprieve.core.presets import named

    settings = load().settings
    name = preset or settings.policy
    policy = named(name, settings.profile)
    return _Chosen(name, amend(policy, rules=(*settings.rules, *policy.rules)), settings.rules)


def _of_task(task: str, target: str | None) -> _Chosen:
    """Return the effective policy of a task of the app, and its dependency if that is a constant."""
    from reprieve.cli.store import choose_app
    from reprieve.views.tasks import resolve

    app, _ = choose_app(None, target, None)
    declaration = app.registry.get(resolve(task, (one.name for one in app.registry)))
    dependency = declaration.dependency if isinstance(declaration.dependency, str) else ""
    policy = app.registry.policy_for(declaration.name, None)
    return _Chosen(declaration.name, policy, app.settings.rules, dependency)


def _named(tables: Sequence[str]) -> list["Rules"]:
    from reprieve.core.rules import http, ses, smtp

    known: dict[str, Rules] = {"smtp": smtp, "ses": ses, "http": http}
    return [known[name] for name in tables]


def _lines(texts: Sequence[str]) -> list[str]:
    if not all(map(str.strip, texts)):
        message = 'TEXT must be an error, as in reprieve classify "550 5.1.1 no such user", got an empty text'
        raise click.UsageError(message)
    lines: list[str] = []
    for text in texts:
        lines += sys.stdin.read().splitlines() if text == "-" else [text]
    errors = [line for line in lines if line.strip()]
    if not errors:
        message = "standard input is empty; give one error per line"
        raise click.UsageError(message)
    return errors


def _print(judgement: "Judgement") -> None:
    from reprieve.core.duration import spell

    output.print_line((judgement.text, "bold"))
    output.print_facts(
        [
            ("kind", (f"{judgement.kind}: {KINDS[judgement.kind]}", COLOURS[judgement.kind])),
            ("scope", f"{judgement.scope}: {SCOPES[judgement.scope]}"),
            ("code", judgement.code),
            ("asks for", "" if judgement.retry_after is None else f"a wait of {spell(judgement.retry_after)}"),
            ("rule", judgement.rule),
            (
                "unavailable",
                "the request was not served: even a single job is spared" if judgement.is_unavailable else "",
            ),
            (judgement.policy, _sentence(judgement)),
            (
                "when down",
                "park until it is back, without using up an attempt" if judgement.when_down == "park" else "",
            ),
        ]
    )


def _sentence(judgement: "Judgement") -> str:
    """Return what the policy would do, as a sentence."""
    from reprieve.core.duration import spell

    if judgement.earliest is None or judgement.latest is None:
        return f"dead at once, as {judgement.death}"
    earliest, latest = spell(judgement.earliest), spell(judgement.latest)
    word = "for" if judgement.decision == "park" else "in"
    when = f"{word} {earliest}" if earliest == latest else f"{word} {earliest} to {latest}"
    limit = "until its deadline" if judgement.max_attempts is None else _at_most(judgement.max_attempts)
    return f"{judgement.decision} {when}, {limit if judgement.is_charged else 'without using up an attempt'}"


def _at_most(attempts: int) -> str:
    return "at most 1 attempt" if attempts == 1 else f"at most {attempts} attempts"
