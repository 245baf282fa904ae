"""The target: an app, named by its module and its name in it, as `shop.jobs:app`."""

import importlib
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from reprieve.errors import AppNotFound
from reprieve.stores.outbox import Outbox
from reprieve.worker.workplace import Workplace


class App(Workplace, Protocol):
    """A workplace that can be moved to another store, and that may have an outbox."""

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, opened when it is first needed; None where the settings name none."""
        ...

    def lifespan_context(self) -> AbstractAsyncContextManager[None]:
        """Enter the lifespans of the app."""
        ...

    async def aclose(self) -> None:
        """Let go of the store and the outbox; they are opened again when they are needed again."""
        ...

    def close(self) -> None:
        """Let go of the store; it is opened again when it is needed again."""
        ...


def move(app: App, url: str) -> None:
    """Let an app use the store of a URL, whatever it says itself and whatever its modules have opened already."""
    if url != app.settings.url:
        app.close()
        app.settings = replace(app.settings, url=url)


def move_outbox(app: App, url: str) -> None:
    """Let an app use the outbox of a URL."""
    if url != app.settings.outbox:
        app.close()
        app.settings = replace(app.settings, outbox=url)


def load(target: str) -> App:
    """Import the app that a target names; the working folder counts as a place to import from."""
    module_name, _, attribute = target.partition(":")
    if not module_name or target.count(":") > 1:
        message = f"{target!r} names no app; write module:name, for example shop.jobs:app"
        raise AppNotFound(message)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{module_name}.".startswith(f"{error.name}."):
            raise
        message = f"there is no module {module_name!r} here; write module:name, and start from the folder that has it"
        raise AppNotFound(message) from None
    found = getattr(module, attribute or "app", None)
    if found is None:
        message = f"module {module_name!r} has no {attribute or 'app'!r}; the app is named after the colon"
        raise AppNotFound(message)
    # The class is asked: to ask the app itself for its store would open it.
    if not hasattr(found, "registry") or not hasattr(type(found), "store"):
        message = f"{target!r} is a {type(found).__name__}, not a Reprieve app"
        raise AppNotFound(message)
    return found  # type: ignore[no-any-return]  # looked at above
