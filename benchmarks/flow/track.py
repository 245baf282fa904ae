"""What jobs leave behind while they are measured: a count in shared memory, and stamps in a file.

The same on every side, and nothing but the standard library: a peer's jobs import it in an environment of their own.
"""

import mmap
import os
import struct
import threading
from pathlib import Path

FOLDER = "BENCH_FOLDER"
"""The variable that names the folder of a measurement."""

URL = "BENCH_URL"
"""And the one that names its store."""

DATABASE = "jobs.db"
PAYLOAD = "x" * 200
SECOND = 1_000_000_000

_COUNT = struct.Struct("<Q")
_STAMP = struct.Struct("<q")


class Track:
    """What the jobs of this process write; opened by the first, since a worker may fork before."""

    def __init__(self) -> None:
        """Open nothing yet."""
        self._lock = threading.Lock()
        self._memory: mmap.mmap | None = None
        self._stamps = -1
        self._count = 0

    def count(self) -> None:
        """Count one attempt: a few hundred nanoseconds, and no call of the system."""
        with self._lock:
            memory = self._memory or self._open()
            self._count += 1
            _COUNT.pack_into(memory, 0, self._count)

    def stamp(self, nanoseconds: int) -> None:
        """Write down how long something took."""
        with self._lock:
            self._memory = self._memory or self._open()
            os.write(self._stamps, _STAMP.pack(nanoseconds))

    def _open(self) -> mmap.mmap:
        place = folder()
        with (place / f"count-{os.getpid()}").open("wb+") as file:
            file.truncate(_COUNT.size)
            self._memory = mmap.mmap(file.fileno(), _COUNT.size)
        self._stamps = os.open(place / "stamps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return self._memory


def folder() -> Path:
    """Return the folder of this measurement."""
    return Path(os.environ[FOLDER])


def counted(place: Path) -> int:
    """Return how many attempts the jobs of all processes have counted so far."""
    return sum(_COUNT.unpack(file.read_bytes())[0] for file in place.glob("count-*") if file.stat().st_size)


def stamped(place: Path) -> list[int]:
    """Return every stamp."""
    file = place / "stamps"
    return [stamp for (stamp,) in _STAMP.iter_unpack(file.read_bytes())] if file.exists() else []
