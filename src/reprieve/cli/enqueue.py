"""`reprieve enqueue`: store a call of a task from the command line."""

from typing import Any

import click

from reprieve.cli import output
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import store_option


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.argument("task")
@click.argument("arguments", nargs=-1)
@click.option("--with", "keywords", multiple=True, metavar="NAME=VALUE", help="A keyword argument of the task.")
@click.option("--tenant", help="Whose job it is.")
@click.option("--queue", help="Another queue than the task's.")
@click.option("--delay", type=DURATION, help="How long to wait before the first attempt.")
@click.option("--priority", type=click.IntRange(1, 9), help="1 is first, 9 last.")
@click.option("--key", help="At most one job of the task and tenant has it.")
@click.option("--deadline", type=DURATION, help="The job must not start later than this.")
@click.option("--max-attempts", type=click.IntRange(1), help="How many failures end this job.")
@store_option
@output.json_option
def enqueue(
    *,
    target: str,
    task: str,
    arguments: tuple[str, ...],
    keywords: tuple[str, ...],
    url: str | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - the options of a job, as they are named there
) -> None:
    """Store a call of a task.

    ARGUMENTS are read as the task's annotations say: as JSON if they are JSON and fit, and as text otherwise:
    `reprieve enqueue shop:app shop.send_welcome 42 --with template=hello --tenant acme`
    """
    from reprieve.call import Call, Terms
    from reprieve.worker import target as targets

    app = targets.load(target)
    if url is not None:
        targets.move(app, url)
    chosen = {name: value for name, value in options.items() if value is not None}
    terms = Terms(app.registry.get(task), chosen)  # type: ignore[arg-type]  # named as the options of a job are
    args, kwargs = terms.declaration.codec.read(arguments, dict(map(_keyword, keywords)))
    call = Call(terms, args, kwargs)
    receipt = app.enqueue(call)  # type: ignore[attr-defined]  # a target is an app
    if as_json:
        output.print_json(receipt)
    else:
        output.print_line((receipt.id, "cyan"), "" if receipt.is_new else " exists already: its key is taken")


def _keyword(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        message = f"{text!r} is not a keyword argument; write --with name=value"
        raise click.BadParameter(message)
    return name, value
