"""A process reads only those gates that have changed, and all of them where it cannot know."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reprieve.core.failure import read
from reprieve.core.job import Job
from reprieve.core.outcome import Failed
from reprieve.core.verdict import Verdict
from reprieve.stores.open import open_store
from reprieve.stores.protocol import EntryChanges, Store
from reprieve.testing import FakeClock
from reprieve.testing.conformance.stage import set_entry
from reprieve.testing.fault import MEMORY, FaultyStore
from reprieve.worker.gates import Gates

BUSY = Failed(failure=read("slow down"), verdict=Verdict(kind="throttled", scope="dependency", retry_after=60.0))


class Counting(FaultyStore):
    """A store that notes how many entries each read of changes has brought."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read: list[int] = []

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        changes = await super().entries_since(cursor, prefix, now)
        self.read.append(len(changes.entries) + len(changes.deleted))
        return changes


class Process(Gates):
    """The gates of one process."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        super().__init__(store, clock, lambda _: 0)

    async def hold(self, dependency: str) -> None:
        now = self._clock.now()
        job = Job(id="job", task="t", dependency=dependency, created_at=now, due_at=now, leased_at=now)
        self.record(job, BUSY)
        await self.share_all()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store() -> AsyncIterator[Counting]:
    store = Counting(open_store(MEMORY))
    yield store
    await store.close()


async def test_a_read_of_the_gates_brings_only_what_has_changed(store: Counting, clock: FakeClock) -> None:
    one, other = Process(store, clock), Process(store, clock)
    for number in range(20):
        await one.hold(f"host-{number}")
    await other.refresh()
    await one.hold("host-20")
    await other.refresh()
    await other.refresh()
    assert store.read == [20, 1, 0]
    assert all(other.is_held(f"host-{number}") for number in range(21))
    entry = await store.entry("gate:host-3")
    assert entry is not None
    await set_entry(store, entry.key, entry.version, None)
    await other.refresh()
    assert [number for number in range(21) if not other.is_held(f"host-{number}")] == [3]


async def test_gates_of_a_store_that_was_restored_are_those_of_the_backup(tmp_path: Path, clock: FakeClock) -> None:
    path, backup = tmp_path / "jobs.db", tmp_path / "backup.db"
    first = open_store(f"sqlite:///{path}")
    await Process(first, clock).hold("kept")
    await first.close()
    shutil.copy(path, backup)
    lost = open_store(f"sqlite:///{path}")
    process, other = Process(lost, clock), Process(lost, clock)
    await other.hold("lost")
    await other.hold("also-lost")
    await process.refresh()
    assert process.is_held("lost")
    await lost.close()
    restored = open_store(f"sqlite:///{backup}")
    process._store = restored  # noqa: SLF001 - the same URL, whose file was replaced
    other = Process(restored, clock)
    # The restored store gives the numbers of the lost changes again.
    for dependency in ("new", "another", "last"):
        await other.hold(dependency)
    await process.refresh()
    held = [name for name in ("kept", "lost", "also-lost", "new", "another", "last") if process.is_held(name)]
    assert held == ["kept", "new", "another", "last"]
    await restored.close()


async def test_a_gate_that_is_written_after_a_restore_counts_although_its_version_is_smaller(
    tmp_path: Path, clock: FakeClock
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    process = Process(store, clock)
    for number in range(5):
        await process.hold(f"host-{number}")
    restored = open_store(f"sqlite:///{tmp_path / 'restored.db'}")
    process._store = restored  # noqa: SLF001 - the same URL, whose file was replaced
    await process.hold("host-4")
    entry = await restored.entry("gate:host-4")
    assert entry is not None
    await set_entry(restored, entry.key, entry.version, None)
    await process.refresh()
    assert not process.is_held("host-4")
    await restored.close()
    await store.close()
