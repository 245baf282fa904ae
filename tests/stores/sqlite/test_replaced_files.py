"""The file deleted or replaced while it is open: noticed, never acknowledged into, and never spoilt by its old log."""

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from reprieve.clock import ticks
from reprieve.errors import StoreError, StoreReplaced
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore
from reprieve.stores.sqlite.outbox import SqliteOutbox
from reprieve.testing.conformance.stage import START, Worker, new_job, new_jobs
from tests.stores.sqlite.processes import PATIENCE, Program
from tests.stores.sqlite.recount import complaints, stored_ids

NAMES = ("", "-wal", "-shm")


def beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def back_up(path: Path) -> Path:
    """Copy the store as it is now."""
    copy = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def move_over(path: Path, backup: Path) -> None:
    shutil.copy(backup, restored := path.with_name("restored.db"))
    restored.replace(path)


def move_over_and_remove_the_log(path: Path, backup: Path) -> None:
    move_over(path, backup)
    for end in NAMES[1:]:
        beside(path, end).unlink(missing_ok=True)


def copy_over(path: Path, backup: Path) -> None:
    for end in NAMES[1:]:
        beside(path, end).unlink()
    shutil.copy(backup, path)


def copy_over_and_leave_the_memory(path: Path, backup: Path) -> None:
    beside(path, "-wal").unlink()
    shutil.copy(backup, path)


def delete(path: Path, _: Path) -> None:
    path.unlink()


def delete_all(path: Path, _: Path) -> None:
    for found in path.parent.glob("jobs.db*"):
        found.unlink()


Way = Callable[[Path, Path], None]
RESTORED: list[Way] = [move_over, move_over_and_remove_the_log, copy_over, copy_over_and_leave_the_memory]
ways = pytest.mark.parametrize("lose", [delete, delete_all, *RESTORED])
restoring = pytest.mark.parametrize("restore", RESTORED)


async def retried(store: SqliteStore, count: int = 1) -> list[str]:
    """Enqueue as a patient producer does: again after every error, the same jobs."""
    jobs = new_jobs(store, count)
    deadline = ticks() + PATIENCE
    while True:
        try:
            return await store.enqueue(jobs, START)
        except StoreReplaced:
            assert ticks() < deadline
            await asyncio.sleep(0.05)


def ids_in(path: Path) -> set[str]:
    """Return the jobs of a sound file, read by another program."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert complaints(path) == []
    return stored_ids(path)


@ways
async def test_no_enqueue_is_acknowledged_into_a_file_that_is_gone(path: Path, store: SqliteStore, lose: Way) -> None:
    await store.enqueue(new_jobs(store, 3), START)
    lose(path, back_up(path))
    with pytest.raises(StoreReplaced, match=r"jobs\.db was (deleted|replaced)"):
        await store.enqueue([new_job(store)], START)
    with pytest.raises(StoreReplaced):
        store.enqueue_sync([new_job(store)], START)


@ways
async def test_what_is_read_is_not_read_from_a_file_that_is_gone(path: Path, store: SqliteStore, lose: Way) -> None:
    (job_id,) = await store.enqueue([new_job(store)], START)
    lose(path, back_up(path))

    async def read() -> None:
        deadline = ticks() + PATIENCE
        while ticks() < deadline:
            await store.find(Filter(ids=(job_id,)), START)

    with pytest.raises(StoreReplaced):
        await read()


@restoring
async def test_a_store_goes_on_with_the_file_that_was_restored(path: Path, store: SqliteStore, restore: Way) -> None:
    before = await store.enqueue(new_jobs(store, 3, tenant="a"), START)
    backup = back_up(path)
    # Lanes and sessions that the restored file does not know.
    await store.enqueue(new_jobs(store, 3, tenant="b", queue="other"), START)
    await (await Worker.open(store)).take(2)
    restore(path, backup)
    after = await retried(store, 5)
    assert ids_in(path) == {*before, *after}
    worker = await Worker.open(store, "another")
    assert {job.id for job in await worker.take(100)} == {*before, *after}


@restoring
async def test_a_commit_of_another_process_wakes_a_store_on_the_restored_file(
    path: Path, store: SqliteStore, restore: Way
) -> None:
    restore(path, back_up(path))
    await retried(store)
    async with AsyncExitStack() as stack:
        producer = await started(stack, "enqueue_when_told", path)
        worker = await Worker.open(store)
        await worker.take(10)
        producer.tell()
        deadline = ticks() + PATIENCE
        # The notifier that was opened anew may wake a session once more than needed.
        while not (await worker.ask(10)).jobs:
            assert await store.wait(("default",), deadline - ticks(), worker.session)


async def started(stack: AsyncExitStack, name: str, path: Path) -> Program:
    program = await Program.start(name, path)
    stack.push_async_callback(program.kill)
    await program.read()
    return program


@restoring
async def test_a_process_that_notices_late_spoils_nothing(path: Path, store: SqliteStore, restore: Way) -> None:
    before = await store.enqueue(new_jobs(store, 3), START)
    async with AsyncExitStack() as stack:
        late = await started(stack, "enqueue_until_stored", path)
        late.tell()
        stored = (await late.read())["stored"]
        backup = back_up(path)
        restore(path, backup)
        after = [*stored, *before, *await retried(store, 50)]
        late.tell()
        after += (await late.read())["stored"]
        await late.end()
        after += await retried(store, 5)
    assert ids_in(path) == set(after)


@restoring
async def test_a_store_that_is_closed_leaves_the_restored_file_as_it_is(path: Path, restore: Way) -> None:
    store = SqliteStore(path)
    before = await store.enqueue(new_jobs(store, 3), START)
    backup = back_up(path)
    await store.enqueue(new_jobs(store, 100), START)
    restore(path, backup)
    await store.close()
    assert ids_in(path) == set(before)


async def test_a_file_that_was_moved_away_has_all_that_was_acknowledged(path: Path, store: SqliteStore) -> None:
    before = await store.enqueue(new_jobs(store, 20), START)
    away = await asyncio.to_thread(path.rename, path.with_name("away.db"))
    with pytest.raises(StoreReplaced, match="deleted"):
        await store.enqueue([new_job(store)], START)
    # Read without its log, which has the old name.
    deadline = ticks() + PATIENCE
    while beside(path, "-wal").exists():
        assert ticks() < deadline
        await asyncio.sleep(0.01)
    # A call that got an error may be stored there.
    assert ids_in(away) >= set(before)


async def test_a_deleted_file_is_not_made_again_by_an_open_store(path: Path, store: SqliteStore) -> None:
    delete(path, path)
    for _ in range(3):
        with pytest.raises(StoreReplaced, match="migrate up"):
            await Worker.open(store)
        with pytest.raises(StoreError):
            await store.find(Filter(), START)
    assert list(path.parent.glob(path.name)) == []
    await SqliteStore(path).close()
    assert len(await retried(store)) == 1


async def test_a_copy_that_is_not_complete_is_not_opened(path: Path, store: SqliteStore) -> None:
    before = await store.enqueue(new_jobs(store, 500, payload=b"x" * 1_000), START)
    backup = back_up(path)
    whole = backup.read_bytes()
    for end in NAMES[1:]:
        beside(path, end).unlink()
    with path.open("wb", buffering=0) as copy:
        for start in range(0, len(whole), 200_000):
            with pytest.raises(StoreReplaced):
                await store.enqueue([new_job(store)], START)
            copy.write(whole[start : start + 200_000])
    after = await retried(store)
    assert ids_in(path) == {*before, *after}


async def test_ids_of_two_processes_differ_after_a_restore(path: Path, store: SqliteStore) -> None:
    backup = back_up(path)
    other = SqliteStore(path)
    move_over(path, backup)
    await retried(store)
    await retried(other)
    made = [one.new_id(START, "default") for one in (store, other) for _ in range(1_000)]
    assert len(set(made)) == len(made)
    await other.close()


async def test_an_outbox_is_read_from_the_file_that_was_restored(path: Path) -> None:
    outbox = SqliteOutbox(path)
    await outbox.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("begin immediate")
        outbox.enqueue_in(shop, [new_job(SqliteStore(None))], START)
        shop.execute("commit")
    assert len(await outbox.take(10)) == 1
    backup = back_up(path)
    await outbox.settle(await outbox.take(10), {})
    move_over(path, backup)
    deadline = ticks() + PATIENCE
    taken = 0
    while not taken:
        assert ticks() < deadline
        try:
            taken = len(await outbox.take(10))
        except StoreReplaced:
            await asyncio.sleep(0.05)
    await outbox.close()


async def test_a_store_opened_by_a_relative_name_stays_open_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(Path("jobs.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(await store.enqueue([new_job(store)], START)) == 1
    await store.close()
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_a_link_may_be_pointed_to_another_file(tmp_path: Path) -> None:
    first, second, link = (tmp_path / name for name in ("first.db", "second.db", "jobs.db"))
    for path in (first, second):
        await SqliteStore(path).close()
    link.symlink_to(first)
    store = SqliteStore(link)
    before = await store.enqueue(new_jobs(store, 3), START)
    (tmp_path / "new").symlink_to(second)
    (tmp_path / "new").replace(link)
    after = await retried(store, 2)
    await store.close()
    assert ids_in(first) >= set(before)
    assert ids_in(second) == set(after)


async def test_only_its_owner_may_read_what_a_store_creates(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        await store.enqueue([new_job(store)], START)
        made = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.glob("jobs.db*")}
    finally:
        os.umask(before)
    await store.close()
    assert made == dict.fromkeys(["jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock"], 0o600)


async def test_a_file_that_others_may_write_stays_so_with_all_that_belongs_to_it(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_RDWR))
    os.chmod(path, 0o660)  # noqa: PTH101 - of a file in a test
    store = SqliteStore(path)
    made = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.glob("jobs.db*")}
    await store.close()
    assert made == dict.fromkeys(["jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock"], 0o660)
