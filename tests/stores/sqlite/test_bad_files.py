"""Bad files: each is refused with an error that helps, and nothing is written where nothing may be."""

import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from reprieve.errors import (
    ForeignStore,
    InvalidUrl,
    NewerSchema,
    ReprieveError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
)
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore, file
from reprieve.stores.sqlite.file import file_system_of
from reprieve.testing.conformance.stage import START, Worker, new_job, new_jobs, succeed
from tests.stores.sqlite.recount import complaints, stored_ids

ROOT = Path(__file__).parents[3]


def fingerprints(folder: Path) -> dict[str, str]:
    """Return every file of a folder with a hash of its bytes."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def set_rights(of_folder: int, folder: Path, of_files: int) -> None:
    for part in folder.iterdir():
        part.chmod(of_files)
    folder.chmod(of_folder)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run(program: str, *arguments: object) -> list[dict[str, object]]:
    """Run one of the programs, and answer what it said."""
    command = [sys.executable, "-m", "tests.stores.sqlite.programs", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def filled(path: Path, count: int = 300) -> set[str]:
    """Make a store with jobs in it, closed; answer their ids."""
    store = SqliteStore(path)
    worker = await Worker.open(store)
    jobs = [new_job(store, tenant=f"t{number % 40}", payload=b"x" * 200) for number in range(count)]
    await store.enqueue(jobs, START)
    await worker.settle(*(succeed(job) for job in await worker.take(count // 3)))
    await worker.take(count // 3)
    await store.close()
    return {job.id for job in jobs}


# locked


async def test_file_that_stays_locked_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LOCK_TIMEOUT_MS", 100)
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreLocked, match="holds the write lock"):
            await store.enqueue(new_jobs(store, 1), START)
        assert (await store.find(Filter(), START)).jobs == ()
        other.execute("rollback")
    jobs = new_jobs(store, 1)
    assert await store.enqueue(jobs, START) == [jobs[0].id]
    await store.close()


async def test_file_that_stays_locked_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LOCK_TIMEOUT_MS", 100)
    path = tmp_path / "jobs.db"
    await filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreLocked, match="holds the write lock"):
            SqliteStore(path)
    await SqliteStore(path).close()


# not to be written


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Make a folder that every user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder
        folder.chmod(0o700)


async def test_everybody_may_open_a_file_with_the_rights_to_it(shared_folder: Path) -> None:
    path = shared_folder / "jobs.db"
    await filled(path)
    set_rights(0o777, shared_folder, 0o666)
    assert run("open_unprivileged", path) == [{"error": ""}]


@pytest.mark.parametrize(("of_file", "of_folder"), [(0o444, 0o777), (0o666, 0o555)])
async def test_read_only_file_or_folder_is_reported(shared_folder: Path, of_file: int, of_folder: int) -> None:
    path = shared_folder / "jobs.db"
    await filled(path)
    set_rights(of_folder, shared_folder, of_file)
    before = fingerprints(shared_folder)
    (answer,) = run("open_unprivileged", path)
    assert answer["error"] == "StoreReadOnly"
    assert f"{path} cannot be written; check the permissions" in str(answer["message"])
    assert fingerprints(shared_folder) == before


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly, match="does not exist; create it"):
        SqliteStore(tmp_path / "missing" / "jobs.db")
    assert names(tmp_path) == set()


def test_folder_instead_of_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ForeignStore, match="is a folder; name a file"):
        SqliteStore(tmp_path)
    assert names(tmp_path) == set()


# full


async def test_store_without_room_refuses_whole_calls_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    worker = await Worker.open(store)
    stored = set(await store.enqueue(new_jobs(store, 50), START))
    pages = store.submit(lambda tx: tx.execute("pragma page_count").fetchone()[0]).result()
    store.submit(lambda tx: tx.execute(f"pragma max_page_count = {pages + 5}")).result()
    refused = new_jobs(store, 100, payload=b"x" * 1_000)
    with pytest.raises(StoreFull, match="full; make room, nothing of this call was stored"):
        await store.enqueue(refused, START)
    assert stored_ids(path) == stored
    assert complaints(path) == []
    # What needs no room goes on.
    leased = await worker.take(10)
    assert set(await worker.settle(*(succeed(job) for job in leased))) == {"applied"}
    store.submit(lambda tx: tx.execute("pragma max_page_count = 100000")).result()
    assert await store.enqueue(refused, START) == [job.id for job in refused]
    assert len(await worker.take(1_000)) == 140
    assert complaints(path) == []
    await store.close()


@pytest.mark.parametrize("size", [300_000, 450_000])
async def test_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, size: int) -> None:
    path = tmp_path / "jobs.db"
    refusal, end = run("fill_up", path, size)
    assert refusal["code"] == "store_full"
    assert "nothing of this call was stored" in str(refusal["message"])
    assert isinstance(refusal["refused"], list)
    assert isinstance(end["stored"], list)
    assert isinstance(end["taken"], list)
    assert len(end["stored"]) > 100
    assert stored_ids(path) == set(end["stored"])
    assert sorted(end["taken"]) == sorted(end["stored"])
    assert end["results"] == ["applied"]
    assert complaints(path) == []


# damaged


async def use(store: SqliteStore) -> None:
    """Use everything that reads rows."""
    worker = await Worker.open(store, "another")
    await store.enqueue([new_job(store, tenant=f"t{number}") for number in range(50)], START)
    await worker.settle(*(succeed(job) for job in await worker.take(500)))
    lost = await store.recover(START + 90 * 86_400_000, limit=1_000)
    await store.find(Filter(ids=tuple(job.id for job in lost[:10])), START)
    await store.find(Filter(), START, limit=1_000)
    await store.tally("status", Filter(), START)
    await store.events()
    await store.limit_states("tenant")


async def test_damaged_file_is_reported_wherever_the_damage_is(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await filled(path)
    whole = path.read_bytes()
    kinds = set()
    for page in range(1, len(whole) // 4_096):
        damaged = bytearray(whole)
        damaged[page * 4_096 : (page + 1) * 4_096] = bytes(range(255, -1, -1)) * 16
        path.write_bytes(damaged)
        kinds.add(await outcome(path))
    assert StoreCorrupt in kinds
    # Damage may also look like sense, such as the number of a call that is yet to come: that is a store error as well.
    assert all(kind is None or issubclass(kind, StoreError) for kind in kinds)


async def outcome(path: Path) -> type[ReprieveError] | None:
    """Open a file and use it; answer the kind of error, which must be one of ours."""
    try:
        store = SqliteStore(path)
    except ReprieveError as error:
        return type(error)
    try:
        await use(store)
    except ReprieveError as error:
        return type(error)
    else:
        return None
    finally:
        await store.close()


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
async def test_file_that_was_cut_off_is_reported(tmp_path: Path, part: float) -> None:
    path = tmp_path / "jobs.db"
    await filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(StoreCorrupt, match="damaged; restore it from a backup"):
        await use(SqliteStore(path))


# of something else


@pytest.mark.parametrize("text", ["To whom it may concern.\n" * 200, "short", "SQLite format 3"])
def test_text_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "letter.txt"
    path.write_text(text)
    before = fingerprints(tmp_path)
    with pytest.raises(ForeignStore, match="not a SQLite database; name another one"):
        SqliteStore(path)
    assert fingerprints(tmp_path) == before


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_database_of_something_else_is_left_alone(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as shop:
        shop.execute(f"pragma journal_mode = {mode}")
        shop.execute("create table reprieve_job (id integer primary key, title text)")
        shop.execute("insert into reprieve_job values (1, 'baker')")
        shop.commit()
    before = fingerprints(tmp_path)
    with pytest.raises(ForeignStore, match="database of another program; name another file"):
        SqliteStore(path)
    assert fingerprints(tmp_path) == before


async def test_store_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("update reprieve_counter set value = value + 1 where name = 'schema'")
        newer.execute("update reprieve_compatibility set oldest_schema = 2")
        newer.execute("update reprieve_compatibility set oldest_release = '9.8', migrated_by = '9.9'")
        newer.commit()
    before = fingerprints(tmp_path)
    with pytest.raises(NewerSchema, match=r"by Reprieve 9\.9, which releases from 9\.8 on can use, and this is"):
        SqliteStore(path)
    assert fingerprints(tmp_path) == before


MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 0:30 / /mnt/office rw,relatime shared:9 - nfs4 files:/office rw
37 36 8:17 / /mnt/office/fast rw - ext4 /dev/sdb1 rw
38 22 0:31 / /mnt/my\\040share rw - cifs //files/share rw
39 22 0:32 / /mnt/stacked rw - nfs files:/old rw
40 22 8:18 / /mnt/stacked rw - xfs /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/ana", "ext4"),
        ("/mnt/office", "nfs4"),
        ("/mnt/office/deep/er", "nfs4"),
        ("/mnt/officer", "ext4"),
        ("/mnt/office/fast/jobs", "ext4"),
        ("/mnt/my share/jobs", "cifs"),
        ("/mnt/stacked", "xfs"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}41 22 0:33 / {tmp_path.resolve()} rw - nfs4 files:/jobs rw\n")
    # The machine's own mounts cannot be changed by a test.
    monkeypatch.setattr(file, "_require_usable", partial(file._require_usable, mounts=mounts))  # noqa: SLF001
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*use a local disk or PostgreSQL"):
        SqliteStore(tmp_path / "jobs.db")
    assert names(tmp_path) == {"mountinfo"}


# bad requests


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs.db",
        "sqlite",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:jobs.db",
        "sqlite://jobs.db",
        "sqlite:///jobs.db?mode=ro",
        "oracle://ana:secret@host/jobs",
    ],
)
async def test_url_that_names_no_store_is_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidUrl, match=r"write sqlite:///jobs\.db") as refusal:
        open_store(url)
    assert "secret" not in str(refusal.value)
    assert names(tmp_path) == set()


async def test_url_may_be_relative_absolute_and_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///one.db", f"sqlite:///{tmp_path}/two.db", "sqlite:///thr%65e%20jobs.db"):
        await open_store(url).close()
    assert {name for name in names(tmp_path) if name.endswith(".db")} == {"one.db", "two.db", "three jobs.db"}
