"""`reprieve classify`: what an error is, whose it is, and what would follow."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from reprieve.cli import output

if TYPE_CHECKING:  # the core is imported when the command runs
    from reprieve.cli.judgement import Judgement
    from reprieve.core.rule import Rules

TABLES = ("smtp", "ses", "http")
COLOURS = {"transient": "green", "throttled": "yellow", "unknown": "cyan", "permanent": "red", "poison": "red"}
KINDS = {
    "transient": "passes by itself",
    "throttled": "asks us to slow down",
    "unknown": "retried, and blames nobody",
    "permanent": "never passes",
    "poison": "kills its worker",
}
SCOPES = {
    "job": "nobody else would fail",
    "tenant": "the tenant's other jobs would fail as well",
    "dependency": "everybody who calls it would fail",
}


def _tables(_: click.Context, __: click.Parameter, names: str | None) -> tuple[str, ...] | None:
    chosen = None if names is None else tuple(name.strip() for name in names.split(","))
    for name in chosen or ():
        if name not in TABLES:
            message = f"there is no table {name!r}; the tables are {', '.join(TABLES)}"
            raise click.BadParameter(message)
    return chosen


@click.command()
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.option(
    "--rules",
    "tables",
    metavar="TABLES",
    callback=_tables,
    help=f"The tables to ask, in this order, such as http,smtp. [default: {','.join(TABLES)}]",
)
@click.option("--dependency", default="", metavar="NAME", help="What the job was calling: rules and gates may know it.")
@output.json_option
def classify(texts: tuple[str, ...], tables: tuple[str, ...] | None, dependency: str, *, as_json: bool) -> None:
    """Say what an error is, and what would follow.

    Each TEXT is one error, so quote it: reprieve classify "550 5.1.1 no such user". A dash reads errors from standard
    input, one a line. Rules in reprieve.toml go before every table, and the decision is that of the policy for tasks
    that name none.
    """
    from reprieve.cli.judgement import judge_text
    from reprieve.clock import now
    from reprieve.config import load
    from reprieve.core.policy import amend
    from reprieve.core.presets import named

    settings = load().settings
    policy = named(settings.policy, settings.profile)
    policy = amend(policy, rules=(*settings.rules, *(policy.rules if tables is None else _named(tables))))
    at = now()
    judgements = [judge_text(text, settings.policy, policy, dependency, at) for text in _lines(texts)]
    if as_json:
        output.print_json(judgements)
        return
    for each in judgements:
        _print(each)


def _named(tables: Sequence[str]) -> list["Rules"]:
    from reprieve.core.rules import http, ses, smtp

    known: dict[str, Rules] = {"smtp": smtp, "ses": ses, "http": http}
    return [known[name] for name in tables]


def _lines(texts: Sequence[str]) -> list[str]:
    if not all(map(str.strip, texts)):
        message = 'the text to classify is empty; give an error, as in reprieve classify "550 5.1.1 no such user"'
        raise click.UsageError(message)
    lines: list[str] = []
    for text in texts:
        lines += sys.stdin.read().splitlines() if text == "-" else [text]
    return [line for line in lines if line.strip()]


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
            ("unavailable", "it cannot be the job's own: one job alone is spared" if judgement.is_unavailable else ""),
            (judgement.policy, _sentence(judgement)),
            ("when down", "park until it is back, and no attempt is spent" if judgement.when_down == "park" else ""),
        ]
    )


def _sentence(judgement: "Judgement") -> str:
    """Say in words what the policy would do."""
    from reprieve.core.duration import spell

    if judgement.earliest is None or judgement.latest is None:
        return f"dead at once, as {judgement.death}"
    earliest, latest = spell(judgement.earliest), spell(judgement.latest)
    word = "for" if judgement.decision == "park" else "in"
    when = f"{word} {earliest}" if earliest == latest else f"{word} {earliest} to {latest}"
    limit = "until its deadline" if judgement.max_attempts is None else f"at most {judgement.max_attempts} attempts"
    return f"{judgement.decision} {when}, {limit if judgement.is_charged else 'and no attempt is spent'}"
