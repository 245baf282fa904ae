"""`reprieve enqueue`: enqueue a job from the command line."""

from typing import Any

import click

from reprieve.cli import output
from reprieve.cli.group import examples
from reprieve.cli.kinds import DURATION
from reprieve.cli.store import choose_app, store_options


@click.command(
    epilog=examples(
        "reprieve enqueue send_welcome 42 --app shop:app",
        "reprieve enqueue shop:app send_welcome 42 --with template=hello --tenant acme",
        "reprieve enqueue send_welcome 42 --delay 1h --key welcome-42",
        "reprieve enqueue send_welcome 42 --tag nightly --header origin=import --user ana --sla 10m",
    )
)
@click.argument("words", metavar="[MODULE:APP] TASK [ARGUMENTS]...", nargs=-1, required=True)
@click.option("--with", "keywords", multiple=True, metavar="NAME=VALUE", help="A keyword argument of the task.")
@click.option("--tenant", help="The tenant of the job.")
@click.option("--queue", help="The queue, instead of the task's.")
@click.option("--delay", type=DURATION, help="How long to wait before the first attempt.")
@click.option("--priority", type=click.IntRange(1, 9), help="1 (first) to 9 (last).")
@click.option("--key", help="Unique key: at most one job of the task and tenant has it.")
@click.option("--deadline", type=DURATION, help="How long from now the job may run.")
@click.option("--max-attempts", type=click.IntRange(1), help="How many charged failures end this job.")
@click.option("--sla", type=DURATION, help="How long from now the job should have ended; nothing ends it then.")
@click.option("--user", help="The person or account that the job is done for.")
@click.option("--tag", "tags", multiple=True, help="A tag, instead of the task's. Can be repeated.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of your own. Can be repeated.")
@store_options
@output.json_option
def enqueue(
    *,
    words: tuple[str, ...],
    target: str | None,
    keywords: tuple[str, ...],
    headers: tuple[str, ...],
    url: str | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - the options of a job, by their names
) -> None:
    """Enqueue a job.

    TASK may be the end of the task's name if it is unique. ARGUMENTS are converted by the task's annotations: as JSON
    if they are valid JSON and fit, else as text.

    The default app is REPRIEVE_APP or the configuration. Without --app, a first word with a colon is the app.

    The job gets the trace context of the environment, in the variables TRACEPARENT and TRACESTATE.
    """
    from reprieve.call import Call, Terms
    from reprieve.views.tasks import resolve

    named, task, arguments = _grammar(words, has_app=target is not None)
    app, _ = choose_app(named, target, url)
    name = resolve(task, (declaration.name for declaration in app.registry))
    own = {"headers": dict(_pair(text, "--header") for text in headers)}
    chosen = {name: value for name, value in options.items() if value is not None and value != ()}
    terms = Terms(app.registry.get(name), chosen | own | _trace())  # type: ignore[arg-type]  # the names are checked by click
    args, kwargs = terms.declaration.codec.read(arguments, dict(_pair(text, "--with") for text in keywords))
    call = Call[object](terms, args, kwargs)
    try:
        job = app.enqueue(call)  # type: ignore[attr-defined]  # a target is an app
    finally:
        app.close()
    if as_json:
        output.print_json({"id": job.id, "isNew": job.is_new})
    else:
        output.print_line((job.id, "cyan"), "" if job.is_new else " exists already: its key is in use")


def _grammar(words: tuple[str, ...], *, has_app: bool) -> tuple[str | None, str, tuple[str, ...]]:
    """Return the app, if it is the first word, the task and its arguments.

    Without --app the first word is the app if it has a colon; so a task with a colon in its name needs --app.
    """
    if has_app or ":" not in words[0]:
        return None, words[0], words[1:]
    if len(words) == 1:
        message = f"Missing argument 'TASK' after the app {words[0]!r}"
        raise click.UsageError(message, click.get_current_context())
    return words[0], words[1], words[2:]


def _pair(text: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        message = f"{option} must have the form name=value, got {text!r}"
        raise click.BadParameter(message)
    return name, value


def _trace() -> dict[str, str]:
    """Return the trace context of the environment; a malformed one is dropped."""
    import os

    from reprieve.core.headers import trace_of

    traceparent, tracestate = trace_of(os.environ.get("TRACEPARENT", ""), os.environ.get("TRACESTATE", ""))
    return {"traceparent": traceparent, "tracestate": tracestate} if traceparent else {}
