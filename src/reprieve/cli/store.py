"""Which app and which store a command uses.

The app is `--app`, then `REPRIEVE_APP`, then `app` in the configuration. The store is `--store`, then the app's, then
`REPRIEVE_URL`, then `url` in the configuration, then the default.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:  # settings, apps and stores are imported when a command runs
    from reprieve.config import Settings
    from reprieve.core.job import Job
    from reprieve.stores.protocol import Store
    from reprieve.worker.target import App

T = TypeVar("T")

NO_APP = (
    "no app is given; use --app shop:app, set REPRIEVE_APP=shop:app, "
    'or write app = "shop:app" in reprieve.toml or under [tool.reprieve] in pyproject.toml'
)

NO_STORE = (
    ", the default store; name the app (--app shop:app, "
    'or app = "shop:app" under [tool.reprieve] in pyproject.toml) or the store (--store URL)'
)

app_option = click.option(
    "--app",
    "target",
    metavar="MODULE:APP",
    help="The app, such as shop:app. [default: REPRIEVE_APP or the configuration]",
)
"""The app as an option."""

app_argument = click.argument("named", metavar="[MODULE:APP]", required=False)
"""The app as an argument, for commands that run it."""

store_option = click.option(
    "--store", "url", metavar="URL", help="The store. [default: that of the app or the configuration]"
)
"""The store as an option."""

_store_argument = click.argument("place", metavar="[URL]", required=False)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the store of a command: the app's, or one by its URL."""
    return app_option(store_option(command))


def store_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options, and the URL as an argument, for commands about the store itself."""
    return _store_argument(store_options(command))


class Choice(NamedTuple):
    """The app of a command, if any, and the settings that name its store."""

    settings: "Settings"
    app: "App | None" = None
    target: str = ""
    is_default: bool = False
    """Whether the store is the default: no option, app or setting names it."""

    @property
    def tasks(self) -> list[str]:
        """The names of the app's tasks."""
        return [] if self.app is None else [declaration.name for declaration in self.app.registry]

    def stuck_after(self, job: "Job") -> float:
        """Return after how many seconds a running job counts as stuck: at least its own timeout."""
        timeout = 0.0 if self.app is None else self.app.registry.timeout_of(job.task)
        return max(self.settings.stuck_after, timeout)


def choose(target: str | None, url: str | None) -> Choice:
    """Return the app and the settings of the store that a command reads.

    With `--store` alone, a configured app is not imported.
    """
    from msgspec.structs import replace

    from reprieve.config import load
    from reprieve.worker import target as targets

    loaded = load()
    settings = loaded.settings
    wanted = target or ("" if url is not None else settings.app)
    app = targets.load(wanted) if wanted else None
    if app is not None:
        settings = app.settings
    if url is not None and url != settings.url:
        # The outbox belongs to the app's own store.
        settings = replace(settings, url=url, outbox="")
    is_default = app is None and url is None and loaded.sources["url"] == "default"
    return Choice(settings, app, wanted, is_default)


def choose_app(named: str | None, target: str | None, url: str | None) -> tuple["App", str]:
    """Return the app that a command runs, with its own store or that of the URL, and its name."""
    from reprieve.config import load
    from reprieve.errors import AppNotFound
    from reprieve.worker import target as targets

    wanted = one_of(named, target, "the app", "--app") or load().settings.app
    if not wanted:
        raise AppNotFound(NO_APP)
    app = targets.load(wanted)
    if url is not None:
        targets.move(app, url)
    return app, wanted


def one_of(argument: str | None, option: str | None, what: str, name: str) -> str | None:
    """Return the argument or the option; raise a usage error if they differ."""
    if argument and option and argument != option:
        message = f"{what} is given twice, as {argument!r} and {name} {option!r}; give one of them"
        raise click.UsageError(message)
    return argument or option


@asynccontextmanager
async def explaining(choice: Choice, job_id: str) -> AsyncIterator[None]:
    """Add to a `JobNotFound` whether the job is still in the outbox of the app."""
    from reprieve.admin.outbox import explained
    from reprieve.errors import JobNotFound
    from reprieve.stores.open import open_outbox

    try:
        yield
    except JobNotFound:
        if not choice.settings.outbox:
            raise
        outbox = open_outbox(choice.settings.outbox)
        try:
            async with explained(outbox, job_id):
                raise
        finally:
            await outbox.close()


def read(choice: Choice, work: Callable[["Store"], Coroutine[Any, Any, T]]) -> T:
    """Open an existing store, call `work` with it, and close it; raise `StoreNotFound` if there is none."""
    import asyncio

    from reprieve.errors import StoreNotFound
    from reprieve.stores.open import open_store

    settings = choice.settings

    async def run() -> T:
        try:
            store = open_store(
                settings.url,
                durability=settings.durability,
                largest_payload=settings.largest_payload,
                shared=settings.shared,
                must_exist=True,
                stuck_after=settings.stuck_after,
            )
        except StoreNotFound as error:
            if not choice.is_default:
                raise
            message = f"{str(error).partition(';')[0]}{NO_STORE}"
            raise StoreNotFound(message) from None
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
