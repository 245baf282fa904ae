"""What must not shake the store: crowds, bad neighbours, bad texts, and files that are not what they seem."""

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from time import perf_counter

import pytest
from msgspec.structs import replace

from reprieve.core.rate import Rate
from reprieve.errors import (
    InvalidUrl,
    ReprieveError,
    StoreClosed,
    StoreCorrupt,
    StoreLocked,
    ValidationError,
)
from reprieve.stores.open import open_store
from reprieve.stores.protocol import LimitUpdate, Retention
from reprieve.stores.sqlite import SqliteStore, file
from reprieve.stores.sqlite.file import file_system_of
from reprieve.testing.conformance.stage import PROGRAM, START, Worker, get, kill, new_job, new_jobs, succeed
from tests.stores.sqlite.recount import stored_ids
from tests.stores.sqlite.test_bad_files import filled, outcome, run, set_rights

ROOT = Path.cwd()


def run_script(script: str, path: Path) -> str:
    """Run a script that may hang for ever; answer what it printed."""
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "update",
    [
        LimitUpdate(subject="queue", name="default", permits=0),
        LimitUpdate(subject="queue", name="default", max_running=1),
        LimitUpdate(subject="queue", name="default", rate=Rate(count=1, window=60)),
        LimitUpdate(subject="dependency", name="ses", permits=0),
    ],
    ids=["held queue", "full queue", "spent queue", "held dependency"],
)
async def test_idle_claim_wakes_no_worker(store: SqliteStore, update: LimitUpdate) -> None:
    worker = await Worker.open(store)
    await store.update_limits([update], START, PROGRAM)
    await store.enqueue(new_jobs(store, 10, dependency="ses"), START)
    await worker.take(5)
    await worker.take(5)
    assert await worker.take(5) == []
    assert not await store.wait(("default",), 0.1)


async def test_idle_claim_of_a_tenant_at_the_ceiling_wakes_no_worker(store: SqliteStore) -> None:
    worker = await Worker.open(store, slots=2)
    await store.enqueue([new_job(store, tenant="b"), *new_jobs(store, 10, tenant="a")], START)
    assert len(await worker.take(2)) == 2
    await worker.take(5)
    assert await worker.take(5) == []
    assert not await store.wait(("default",), 0.1)


CLAIM_WHILE_WAITING = """
import asyncio, sys
from pathlib import Path
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, Worker, new_job

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    worker = await Worker.open(store)
    await worker.ask(1)
    waiting = asyncio.create_task(store.wait(("default",), 5.0))
    await asyncio.sleep(0)
    # A commit whose wake-up is on its way to the loop when another session claims.
    store.submit(lambda tx: tx.execute("update reprieve_counter set value = value + 1 where name = 'entry'")).result()
    await worker.ask(1, queues=("other",))
    print(await waiting)

asyncio.run(main())
"""


def test_claim_of_another_session_does_not_take_the_wake_up_of_a_waiting_one(path: Path) -> None:
    assert run_script(CLAIM_WHILE_WAITING, path) == "True\n"


OPEN = "import sys; from pathlib import Path; from reprieve.stores.sqlite import SqliteStore\n"
OPEN += "try: SqliteStore(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__)"


def test_lock_file_that_cannot_be_opened_is_reported(path: Path) -> None:
    path.with_name("jobs.db-lock").mkdir()
    assert run_script(OPEN, path) in ("StoreReadOnly\n", "StoreError\n")


async def test_user_with_the_rights_to_the_file_can_use_it_beside_another(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        await filled(path)
        set_rights(0o777, Path(folder), 0o666)
        path.with_name("jobs.db-lock").chmod(0o600)  # as the store makes it
        (answer,) = run("open_unprivileged", path)
        assert answer["error"] in ("", "StoreReadOnly")


async def test_folder_that_cannot_be_reached_is_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder) / "inner"
        inner.mkdir()
        await filled(inner / "jobs.db")
        set_rights(0o700, Path(folder), 0o700)
        (answer,) = run("open_unprivileged", inner / "jobs.db")
        assert answer["error"] == "StoreReadOnly"


@pytest.mark.faults
async def test_many_calls_on_a_locked_file_share_one_patience(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LOCK_TIMEOUT_MS", 200)
    store = SqliteStore(path)
    worker = await Worker.open(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        start = perf_counter()
        calls = [store.enqueue([new_job(store)], START) for _ in range(10)]
        answers = await asyncio.gather(*calls, worker.heartbeat(), return_exceptions=True)
        took = perf_counter() - start
    assert all(isinstance(answer, StoreLocked) for answer in answers)
    assert took < 1.0
    await store.close()


async def test_new_job_is_never_taken_for_one_that_succeeded(path: Path) -> None:
    one = SqliteStore(path)
    with closing(sqlite3.connect(path)) as connection:  # 1,023 short-lived processes come and go
        connection.execute("update reprieve_counter as counter set value = value + 1023 where name = 'node'")
        connection.commit()
    other = SqliteStore(path)
    worker = await Worker.open(one)
    await one.enqueue([new_job(one)], START)
    await worker.settle(succeed(await worker.one()))
    job = new_job(other)
    assert await other.enqueue([job], START) == [job.id]
    assert await get(other, job) is not None


async def test_processes_that_are_open_together_have_numbers_of_their_own(path: Path) -> None:
    one = SqliteStore(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update reprieve_counter as counter set value = value + 1023 where name = 'node'")
        connection.commit()
    other = SqliteStore(path)
    await one.enqueue([new_job(one)], START)
    await other.enqueue([new_job(other)], START)
    assert len(stored_ids(path)) == 2


async def test_log_stays_small_while_readers_take_turns(path: Path) -> None:
    store = SqliteStore(path, durability="fast")
    worker = await Worker.open(store)
    is_over = threading.Event()

    def look() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            while not is_over.is_set():
                reader.execute("begin")
                reader.execute("select count(*) from reprieve_job as job").fetchone()
                is_over.wait(0.01)
                reader.execute("commit")

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    largest = 0
    for number in range(150):
        await store.enqueue(new_jobs(store, 40, payload=b"x" * 2_000), START)
        await worker.settle(*(succeed(job) for job in await worker.take(40)))
        if number % 20 == 19:
            await store.prune(Retention(now=START, succeeded=100))
        largest = max(largest, path.with_name("jobs.db-wal").stat().st_size)
    is_over.set()
    for looker in lookers:
        looker.join()
    await store.close()
    assert largest < 32_000_000


async def test_who_waits_when_the_store_is_closed_is_told_so(path: Path) -> None:
    store = SqliteStore(path)
    await (await Worker.open(store)).ask()
    waiting = asyncio.create_task(store.wait(("default",), 5.0))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreClosed):
        await waiting


async def test_change_of_what_is_no_job_is_missing_and_spoils_nothing(store: SqliteStore) -> None:
    job = new_job(store)
    await store.enqueue([job], START)
    changes = [kill(replace(job, id="x")), kill(job)]
    assert await store.apply(changes, START) == ["missing", "applied"]


async def test_connection_to_another_file_is_reported(store: SqliteStore) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as stranger:
        stranger.execute("begin")
        with pytest.raises(ValidationError, match="this connection is to a database in memory, the jobs are in /"):
            store.enqueue_in(stranger, [new_job(store)], START)


async def test_texts_may_come_as_the_caller_likes_them(store: SqliteStore, path: Path) -> None:
    first = new_job(store, key="k")
    await store.enqueue([first], START)
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.text_factory = bytes
        shop.execute("begin immediate")
        assert store.enqueue_in(shop, [new_job(store, key="k")], START) == [first.id]
        shop.execute("commit")


@pytest.mark.parametrize("url", ["sqlite:///%00.db", f"sqlite:///{'x' * 300}.db"])
async def test_url_of_an_impossible_file_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReprieveError):
        open_store(url)


async def test_password_in_a_url_that_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(InvalidUrl) as refusal:
        open_store("redis://:secret@[host/jobs")
    assert "secret" not in str(refusal.value)


def test_file_system_of_a_mount_with_letters_beyond_ascii() -> None:
    mounts = "1 1 0:1 / / rw - ext4 a rw\n36 1 0:30 / /mnt/données rw - nfs4 files:/x rw\n"
    assert file_system_of(Path("/mnt/données/jobs"), mounts) == "nfs4"


async def test_lease_that_cannot_be_read_is_damage(path: Path) -> None:
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("insert or replace into reprieve_lease (id, at, jobs) values (1 << 32 | 1, 0, x'93ff')")
        connection.commit()
    assert await outcome(path) is StoreCorrupt


OVERWRITE = """
import asyncio, os, sqlite3, sys
from pathlib import Path
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, new_jobs
async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.enqueue(new_jobs(store, 5_000, payload=b"x" * 300), START)
    sqlite3.connect(sys.argv[1]).execute("pragma wal_checkpoint(truncate)")
    await store.tally("status", Filter(), START)
    os.truncate(sys.argv[1], 8_192)  # as `cp backup.db jobs.db` does first
    try:
        await store.find(Filter(), START, limit=6_000)
    except Exception as error:
        print(type(error).__name__)
asyncio.run(main())
"""


def test_file_that_is_cut_off_while_it_is_open_is_reported(path: Path) -> None:
    assert run_script(OVERWRITE, path) == "StoreCorrupt\n"
