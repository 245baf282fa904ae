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

_PULSE = Struct("<d")
_ENTRY = Struct("<16sd")
_FREE = bytes(_ENTRY.size)


class Entry(Record):
    """An attempt that has started and not ended."""

    job_id: str
    overdue_at: float
    """When, by `clock.ticks`, it should have ended."""
    is_abandoned: bool = False
    """Whether its job was settled without it: nobody waits for it any more."""


class Board:
    """A table of so many slots; shared when it is made of a file."""

    def __init__(self, slots: int, file: int = -1) -> None:
        """Look at a board; -1 makes one that only this process sees."""
        self._memory = mmap.mmap(file, size_of(slots))
        self._free = list(range(slots - 1, -1, -1))

    def begin(self, job_id: str, overdue_at: float) -> int:
        """Note that an attempt starts; answer its slot."""
        slot = self._free.pop()
        _ENTRY.pack_into(self._memory, _PULSE.size + slot * _ENTRY.size, id_to_bytes(job_id), overdue_at)
        return slot

    def abandon(self, slot: int, at: float) -> None:
        """Note that nobody waits for the attempt in a slot any more, though it still runs."""
        place = _PULSE.size + slot * _ENTRY.size
        raw, overdue_at = _ENTRY.unpack_from(self._memory, place)
        _ENTRY.pack_into(self._memory, place, raw, -min(at, overdue_at))

    def end(self, slot: int) -> None:
        """Note that the attempt in a slot has ended."""
        place = _PULSE.size + slot * _ENTRY.size
        self._memory[place : place + _ENTRY.size] = _FREE
        self._free.append(slot)

    def beat(self, at: float) -> None:
        """Note that the loop of the process turns."""
        _PULSE.pack_into(self._memory, 0, at)

    def pulse(self) -> float:
        """Answer when the loop last turned; 0 before it ever did."""
        return float(_PULSE.unpack_from(self._memory)[0])

    def entries(self) -> list[Entry]:
        """Answer what runs."""
        found = _ENTRY.iter_unpack(self._memory[_PULSE.size :])
        return [Entry(job_id=str(UUID(bytes=raw)), overdue_at=abs(at), is_abandoned=at < 0) for raw, at in found if at]

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def size_of(slots: int) -> int:
    """Answer how many bytes a board takes."""
    return _PULSE.size + slots * _ENTRY.size


def make_file(slots: int) -> int:
    """Make the file of a board that a child process can be handed: it has no name, and goes with its last user."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size_of(slots))
        return os.dup(file.fileno())
