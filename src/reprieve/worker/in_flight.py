"""The in-flight table: what one worker process runs right now, in memory that outlives the process.

The process writes when it starts and ends an attempt; its supervisor reads. When the process is gone, for whatever
reason, the table still says which jobs had started, and so which of them may have caused it. A job may end its process
after its attempt, through something that it left behind: so the table also keeps the last attempts that have ended.
"""

import mmap
import os
import tempfile
from struct import Struct
from uuid import UUID

from reprieve.core.ids import id_to_bytes
from reprieve.core.record import Record

_MAX_TASK_BYTES = 80
"""Bytes of a task's name that are kept; of a longer name, the end."""

_MAX_ENDED = 1_024
"""Attempts that are kept after their end: more than one process holds that are not settled yet."""

_PULSE = Struct("<d")
_IS_STORE_AWAY = Struct("<?")
_PREFETCH = Struct("<I")
_ENDED = Struct("<16sI")
_PREFETCH_OFFSET = _PULSE.size + _IS_STORE_AWAY.size
_ENDED_OFFSET = _PREFETCH_OFFSET + _PREFETCH.size
_HEADER_BYTES = _ENDED_OFFSET + _MAX_ENDED * _ENDED.size
_ROW = Struct(f"<16sId{_MAX_TASK_BYTES}s")
_FREE = bytes(_ROW.size)


class InFlight(Record):
    """An attempt that has started and not ended."""

    job_id: str
    attempt: int
    overdue_at: float
    """When, by `clock.ticks`, it should have ended."""
    task: str = ""
    is_abandoned: bool = False
    """Whether its job was settled although it still runs, in a thread that cannot be stopped."""


class InFlightTable:
    """A table with one row for each slot; shared between processes when it lies in a file."""

    def __init__(self, slots: int, file: int = -1) -> None:
        """Map the table of a file; -1 makes one that only this process sees."""
        self._memory = mmap.mmap(file, size_of(slots))
        self._free = list(range(slots - 1, -1, -1))
        self._ended_count = 0

    def begin(self, job_id: str, attempt: int, overdue_at: float, task: str = "") -> int:
        """Add an attempt that starts; return its slot."""
        slot, name = self._free.pop(), task.encode()[-_MAX_TASK_BYTES:]
        _ROW.pack_into(self._memory, _offset(slot), id_to_bytes(job_id), attempt, overdue_at, name)
        return slot

    def abandon(self, slot: int, at: float) -> None:
        """Mark the attempt in a slot as abandoned: its job is settled, and it still runs."""
        raw, attempt, overdue_at, task = _ROW.unpack_from(self._memory, _offset(slot))
        _ROW.pack_into(self._memory, _offset(slot), raw, attempt, -min(at, overdue_at), task)
        self._keep_ended(_offset(slot))

    def end(self, slot: int) -> None:
        """Remove the attempt in a slot: it has ended."""
        offset = _offset(slot)
        self._keep_ended(offset)
        self._memory[offset : offset + _ROW.size] = _FREE
        self._free.append(slot)

    def _keep_ended(self, offset: int) -> None:
        self._memory.move(_ENDED_OFFSET + self._ended_count % _MAX_ENDED * _ENDED.size, offset, _ENDED.size)
        self._ended_count += 1

    def heartbeat(self, at: float) -> None:
        """Record that the event loop of the process turns."""
        _PULSE.pack_into(self._memory, 0, at)

    def pulse(self) -> float:
        """Return when the event loop last turned; 0 before its first turn."""
        return float(_PULSE.unpack_from(self._memory)[0])

    def set_store_away(self, *, is_away: bool) -> None:
        """Record whether the supervisor has logged that the store is unavailable."""
        _IS_STORE_AWAY.pack_into(self._memory, _PULSE.size, is_away)

    def is_store_away(self) -> bool:
        """Return whether the supervisor has logged that the store is unavailable."""
        return bool(_IS_STORE_AWAY.unpack_from(self._memory, _PULSE.size)[0])

    def set_prefetch(self, jobs: int) -> None:
        """Record how many jobs the process fetches ahead."""
        _PREFETCH.pack_into(self._memory, _PREFETCH_OFFSET, jobs)

    def prefetch(self) -> int:
        """Return how many jobs the process fetches ahead."""
        return int(_PREFETCH.unpack_from(self._memory, _PREFETCH_OFFSET)[0])

    def attempts(self) -> list[InFlight]:
        """Return the attempts in flight."""
        rows = _ROW.iter_unpack(self._memory[_HEADER_BYTES:])
        return [_decode(raw, attempt, at, task) for raw, attempt, at, task in rows if at]

    def ended(self) -> frozenset[tuple[str, int]]:
        """Return the last attempts that have ended, by the ids of their jobs and their numbers."""
        rows = _ENDED.iter_unpack(self._memory[_ENDED_OFFSET:_HEADER_BYTES])
        return frozenset((str(UUID(bytes=raw)), attempt) for raw, attempt in rows if attempt)

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()


def size_of(slots: int) -> int:
    """Return how many bytes a table takes."""
    return _offset(slots)


def _offset(slot: int) -> int:
    return _HEADER_BYTES + slot * _ROW.size


def _decode(raw: bytes, attempt: int, at: float, task: bytes) -> InFlight:
    name = task.rstrip(b"\0").decode(errors="ignore")
    return InFlight(job_id=str(UUID(bytes=raw)), attempt=attempt, overdue_at=abs(at), task=name, is_abandoned=at < 0)


def make_file(slots: int) -> int:
    """Return the descriptor of a file for a table. It has no name, and is gone when the last process closes it."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size_of(slots))
        return os.dup(file.fileno())
