"""The target: an app, named by its module and its name in it, as `shop.jobs:app`."""

import importlib
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from msgspec.structs import replace

from reprieve.errors import AppImportFailed, AppNotFound, EnqueueDuringImport, InvalidSetting, NoTasks
from reprieve.importing import application, explain
from reprieve.stores.outbox import Outbox
from reprieve.worker.worker_context import WorkerContext


class App(WorkerContext, Protocol):
    """A worker context that can use another store, and that may have an outbox."""

    workers: int
    """Workers of this process that use the store: while there are any, the app cannot be closed."""

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, opened at the first use; None where the settings name none."""
        ...

    def lifespan_context(self) -> AbstractAsyncContextManager[None]:
        """Enter the lifespans of the app."""
        ...

    async def aclose(self) -> None:
        """Close the store and the outbox; the next use opens them again."""
        ...

    def close(self) -> None:
        """Close the store; the next use opens it again."""
        ...


def move(app: App, url: str) -> None:
    """Let an app use the store of a URL instead of its own, even if its modules have opened that already."""
    if url != app.settings.url:
        app.close()
        app.settings = replace(app.settings, url=url)


def move_outbox(app: App, url: str) -> None:
    """Let an app use the outbox of a URL."""
    if url != app.settings.outbox:
        app.close()
        app.settings = replace(app.settings, outbox=url)


def load(target: str) -> App:
    """Import the app that a target names; modules of the working folder can be imported.

    Raises `AppNotFound` when there is no such app, `AppImportFailed` when its code fails during the import, and
    `EnqueueDuringImport` when it enqueues a job during the import.
    """
    module_name, colon, attribute = target.partition(":")
    if not module_name or target.count(":") > 1 or (colon and not attribute):
        example = f"{module_name.strip('.') or 'shop.jobs'}:app"
        message = f"{target!r} names no app; write module:name, for example {example}"
        raise AppNotFound(message)
    module = import_application(module_name)
    found = getattr(module, attribute or "app", None)
    if found is None:
        message = f"module {module_name!r} has no {attribute or 'app'!r}; {_instead(module, module_name)}"
        raise AppNotFound(message)
    if not _is_app(found):
        message = f"{target!r} is a {type(found).__name__}, not a Reprieve app; {_instead(module, module_name)}"
        raise AppNotFound(message)
    return found  # type: ignore[no-any-return]  # checked above


def require_tasks(app: App, target: str) -> None:
    """Raise `NoTasks` for an app without tasks: its worker would never run anything."""
    if not list(app.registry):
        message = (
            f"{target} has no tasks; put @app.task on a function, and import the modules that declare tasks in "
            f"{target.partition(':')[0]}"
        )
        raise NoTasks(message)


def import_application(name: str) -> ModuleType:
    """Import a module of the application; its code may not enqueue jobs meanwhile."""
    if name.startswith("."):
        # Python would take it as a relative import.
        raise AppNotFound(_missing(name))
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with application():
            return importlib.import_module(name)
    except (EnqueueDuringImport, InvalidSetting):
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _is_missing(name, error):
            raise AppNotFound(_missing(name)) from None
        message = f"{name} cannot be imported: {explain(error)}"
        raise AppImportFailed(message) from error


def _is_missing(name: str, error: ModuleNotFoundError) -> bool:
    """Whether the module itself is missing, and not one that it imports."""
    return error.name is None or f"{name}.".startswith(f"{error.name}.")


def _missing(name: str) -> str:
    message = f"there is no module {name!r} here"
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        return f"{message}; write the module's name and not the file's, as {module}:app"
    if name.startswith(".") and name.strip("."):
        return f"{message}; write the module's full name, as {name.strip('.')}:app"
    return f"{message}; write module:name, and start from the folder that has it"


def _is_app(found: object) -> bool:
    # On the class: reading the property of the app itself would open its store.
    return hasattr(found, "registry") and hasattr(type(found), "store")


def _instead(module: ModuleType, name: str) -> str:
    """Return which app may be meant, or what to do."""
    apps = [attribute for attribute, value in vars(module).items() if _is_app(value)]
    if apps:
        return f"write {' or '.join(f'{name}:{attribute}' for attribute in apps)}"
    here = Path.cwd().joinpath(*name.split(".")).with_suffix(".py")
    if here.is_file() and not here.samefile(getattr(module, "__file__", None) or sys.executable):
        return f"that module is {module.__file__}, and {here.name} is hidden behind it: rename the file"
    return 'make one there: app = Reprieve("sqlite:///jobs.db")'
