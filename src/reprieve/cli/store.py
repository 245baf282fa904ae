"""Which app and which store a command is about.

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
    "no app is named; give it (--app shop:app), set REPRIEVE_APP=shop:app, "
    'or write app = "shop:app" in reprieve.toml or under [tool.reprieve] in pyproject.toml'
)

NO_STORE = (
    ", the store that is used when neither an app nor a store is named; name the app (--app shop:app, "
    'or app = "shop:app" under [tool.reprieve] in pyproject.toml) or the store (--store URL)'
)

app_option = click.option(
    "--app", "target", metavar="MODULE:APP", help="The app, as shop:app; else REPRIEVE_APP or the configuration says."
)
"""The app as an option."""

app_argument = click.argument("named", metavar="[MODULE:APP]", required=False)
"""The app as an argument, for commands that run it."""

store_option = click.option("--store", "url", metavar="URL", help="This store, whatever the app and the settings say.")
"""The store as an option."""

_store_argument = click.argument("place", metavar="[URL]", required=False)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which store a command is about: the app's, or one by its URL."""
    return app_option(store_option(command))


def store_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options, and the URL as an argument, for commands that are about the store itself."""
    return _store_argument(store_options(command))


class Choice(NamedTuple):
    """The app that a command is about, if any, and the settings that name its store."""

    settings: "Settings"
    app: "App | None" = None
    target: str = ""
    is_default: bool = False
    """Whether no option, app or setting names the store: it is the default."""

    @property
    def tasks(self) -> list[str]:
        """The names of the app's tasks."""
        return [] if self.app is None else [declaration.name for declaration in self.app.registry]

    def stuck_after(self, job: "Job") -> float:
        """Return after how many seconds a running job counts as stuck: never before its own timeout."""
        timeout = 0.0 if self.app is None else self.app.registry.timeout_of(job.task)
        return max(self.settings.stuck_after, timeout)


def choose(target: str | None, url: str | None) -> Choice:
    """Return the app and the settings of the store that a command looks at.

    With `--store` alone, a configured app is not imported: nothing of it is needed.
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
        # The outbox is the app's way to its own store.
        settings = replace(settings, url=url, outbox="")
    is_default = app is None and url is None and loaded.sources["url"] == "default"
    return Choice(settings, app, wanted, is_default)


def choose_app(named: str | None, target: str | None, url: str | None) -> tuple["App", str]:
    """Return the app that a command runs, on its own store or on that of the URL, and its name."""
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
    """Return what was given, as an argument or as an option; refuse two that contradict each other."""
    if argument and option and argument != option:
        message = f"{what} is given twice, as {argument!r} and as {name} {option!r}; give one of them"
        raise click.UsageError(message)
    return argument or option


@asynccontextmanager
async def explaining(choice: Choice, job_id: str) -> AsyncIterator[None]:
    """Let a `JobNotFound` say what the outbox of the app has to do with it, where there is one."""
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
    """Open a store that exists, do something with it, and close it. Nothing is created where there is none."""
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
