"""Finding tasks by name; the end of a name is enough where only one task fits."""

from collections.abc import Iterable

from reprieve.core.suggestion import suggest
from reprieve.errors import AmbiguousTask, UnknownTask
from reprieve.stores.protocol import Filter, Store

MAX_LISTED = 5
"""Candidates that an error names."""


def resolve(name: str, known: Iterable[str]) -> str:
    """Return the whole name of a task by its name or by the end of it, after a dot: `send_welcome`, `mail.send`.

    Raises `UnknownTask` when none fits, and `AmbiguousTask` when several do.
    """
    names = sorted(known)
    found = _match(name, names)
    if found is None:
        message = f"no task is named {name!r}; {suggest(name, names, 'tasks')}"
        raise UnknownTask(message)
    return found


async def resolve_stored(store: Store, now: int, name: str, registered: Iterable[str]) -> str:
    """Return the whole name of a task for a filter: a task of the app, or one whose jobs the store holds."""
    names = set(registered)
    found = _match(name, sorted(names))
    return found or resolve(name, names | set((await store.tally("task", Filter(), now)).counts))


def _match(name: str, names: list[str]) -> str | None:
    if name in names:
        return name
    fitting = [one for one in names if one.endswith(f".{name}")] if name else []
    if len(fitting) > 1:
        listed = ", ".join(fitting[:MAX_LISTED]) + (", …" if len(fitting) > MAX_LISTED else "")
        message = f"{len(fitting)} tasks end with {name!r}: {listed}; give more of the name"
        raise AmbiguousTask(message)
    return fitting[0] if fitting else None
