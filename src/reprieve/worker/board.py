"""The board: what one worker process runs right now, in memory that outlives it.

The process writes when it starts and ends an attempt; its supervisor reads. When the process is gone, whatever made it
go, the board still says which jobs had started, and so which of them can be to blame.
"""

import mmap
import os
import tempfile
from struct import Struct
from uuid import UUID

from reprieve.core.ids import id_to_bytes
from reprieve.core.record import Record

_TASK_BYTES = 80
"""Bytes of a task's name that fit; of a longer one, its end."""

_PULSE = Struct("<d")
_STORE = Struct("<?")
_HEAD_BYTES = _PULSE.size + _STORE.size
_ENTRY = Struct(f"<16sd{_TASK_BYTES}s")
_FREE = bytes(_ENTRY.size)


class Entry(Record):
    """An attempt that has started and not ended."""

    job_id: str
    overdue_at: float
    """When, by `clock.ticks`, it should have ended."""
    task: str = ""
    is_abandoned: bool = False
    """Whether its job was settled without it: nobody waits for it any more."""


class Board:
    """A table of so many slots; shared when it is made of a file."""

    def __init__(self, slots: int, file: int = -1) -> None:
        """Look at a board; -1 makes one that only this process sees."""
        self._memory = mmap.mmap(file, size_of(slots))
        self._free = list(range(slots - 1, -1, -1))

    def begin(self, job_id: str, overdue_at: float, task: str = "") -> int:
        """Note that an attempt starts; return its slot."""
        slot = self._free.pop()
        _ENTRY.pack_into(self._memory, _place(slot), id_to_bytes(job_id), overdue_at, task.encode()[-_TASK_BYTES:])
        return slot

    def abandon(self, slot: int, at: float) -> None:
        """Note that nobody waits for the attempt in a slot any more, though it still runs."""
        raw, overdue_at, task = _ENTRY.unpack_from(self._memory, _place(slot))
        _ENTRY.pack_into(self._memory, _place(slot), raw, -min(at, overdue_at), task)

    def end(self, slot: int) -> None:
        """Note that the attempt in a slot has ended."""
        place = _place(slot)
        self._memory[place : place + _ENTRY.size] = _FREE
        self._free.append(slot)

    def heartbeat(self, at: float) -> None:
        """Note that the loop of the process turns."""
        _PULSE.pack_into(self._memory, 0, at)

    def pulse(self) -> float:
        """Return when the loop last turned; 0 before it ever did."""
        return float(_PULSE.unpack_from(self._memory)[0])

    def tell_store_away(self, *, is_away: bool) -> None:
        """Tell the process that the log says already whether the store is away."""
        _STORE.pack_into(self._memory, _PULSE.size, is_away)

    def is_store_away(self) -> bool:
        """Return whether the supervisor has logged that the store is away."""
        return bool(_STORE.unpack_from(self._memory, _PULSE.size)[0])

    def entries(self) -> list[Entry]:
        """Return what runs."""
        found = _ENTRY.iter_unpack(self._memory[_HEAD_BYTES:])
        return [_entry(raw, at, task) for raw, at, task in found if at]

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def size_of(slots: int) -> int:
    """Return how many bytes a board takes."""
    return _place(slots)


def _place(slot: int) -> int:
    return _HEAD_BYTES + slot * _ENTRY.size


def _entry(raw: bytes, at: float, task: bytes) -> Entry:
    name = task.rstrip(b"\0").decode(errors="ignore")
    return Entry(job_id=str(UUID(bytes=raw)), overdue_at=abs(at), task=name, is_abandoned=at < 0)


def make_file(slots: int) -> int:
    """Make the file of a board that a child process can be handed: it has no name, and goes with its last user."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size_of(slots))
        return os.dup(file.fileno())
