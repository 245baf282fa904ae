"""Since when no live session has known which tasks: one entry of the store says it for all processes.

It is one entry, so that a read of it costs the same however many other entries there are.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from reprieve.core.audit import Automatic
from reprieve.core.record import Record
from reprieve.stores.protocol import MAX_EXCLUDED_TASKS, Entry, EntryWrite, Store

ENTRY_KEY: Final = "unknown-tasks"
"""The key of the entry."""

MAX_STORED_TASKS: Final = MAX_EXCLUDED_TASKS
"""Tasks in the entry. The time of the oldest is forgotten for a new one, and begins anew when it is met again."""

MAX_WRITES: Final = 5
"""How often a change is tried while other processes change the entry; then it is left to the next check."""


class UnknownTask(NamedTuple):
    """A task of which jobs wait in a queue."""

    queue: str
    task: str


class UnknownSince(Record):
    """How the entry says it of one task."""

    queue: str
    task: str
    since_at: int


Since: TypeAlias = dict[UnknownTask, int]
"""Since when no live session has known each task."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[UnknownSince]).decode


async def change_unknown_since(store: Store, change: Callable[[Since], Since], now: int) -> Since:
    """Change the entry, and return what it says then; nothing, if other processes keep changing it.

    `change` is called again with what another process has written meanwhile.
    """
    for _ in range(MAX_WRITES):
        entry = await store.entry(ENTRY_KEY)
        before = _read(entry)
        after = dict(sorted(change(before).items(), key=lambda since: since[1])[-MAX_STORED_TASKS:])
        if after == before:
            return before
        write = EntryWrite(key=ENTRY_KEY, version=0 if entry is None else entry.version, value=_write(after))
        if (await store.compare_and_set(write, now, Automatic(by="unknown tasks"))).entry is not None:
            return after
    return {}


def _read(entry: Entry | None) -> Since:
    """Return what an entry says; one that cannot be read says nothing, so every task has its full time again."""
    try:
        stored = [] if entry is None else _decode(entry.value)
    except msgspec.MsgspecError:
        stored = []
    return {UnknownTask(one.queue, one.task): one.since_at for one in stored}


def _write(since: Since) -> bytes | None:
    if not since:
        return None
    return _encode([UnknownSince(queue=queue, task=task, since_at=at) for (queue, task), at in since.items()])
