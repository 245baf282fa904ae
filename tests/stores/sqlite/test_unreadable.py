"""Damaged rows of a file: whatever is in them, the others are found, claimed and pruned, and the doctor counts them."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from reprieve.core.unreadable import unreadable_record
from reprieve.stores.open import diagnostics_for, open_store
from reprieve.stores.protocol import Annotation, Filter, Retention, Store
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    kill,
    new_jobs,
    succeed,
)
from tests.stores.sqlite.recount import complaints


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Store:
    return open_store(f"sqlite:///{path}")


def change(path: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, parameters)


@pytest.mark.parametrize("record", [b"", b"\xc1", b"\0" * 100, b"garbage that is long enough"])
async def test_record_is_lost_with_a_part_of_the_id(path: Path, store: Store, record: bytes) -> None:
    lost, sound = await enqueued(store), await enqueued(store)
    change(path, "update reprieve_job set record = ? where id = (select min(id) from reprieve_job)", record)
    found = await get(store, lost)
    assert found is not None
    assert found.id == lost.id
    assert (unreadable_record(found) or ("", b""))[1] == record
    worker = await Worker.open(store)
    leased = {job.id == sound.id: job for job in await worker.exactly(2)}
    assert await worker.settle(kill(leased[False], death="undecodable"), succeed(leased[True])) == ["applied"] * 2
    (dead,) = await find_all(store, Filter(statuses=frozenset({"dead"})))
    assert (unreadable_record(dead) or ("", b""))[1] == record
    await store.close()
    assert complaints(path) == []


async def test_unknown_wait_stops_nothing(path: Path, store: Store) -> None:
    odd, later, sound = await enqueued(store), await enqueued(store, due_at=START + DAY), await enqueued(store)
    change(path, "update reprieve_job set wait = 9 where due > ? or id = (select min(id) from reprieve_job)", START)
    change(path, "update reprieve_delayed set wait = 9")
    assert {job.id for job in await find_all(store, Filter())} == {odd.id, sound.id}
    assert [job.id for job in await find_all(store, Filter(ids=(later.id,)))] == [later.id]
    worker = await Worker.open(store)
    assert {job.id for job in await worker.take(5)} == {odd.id, sound.id}
    await store.close()


async def test_event_that_cannot_be_read_is_left_out_and_logged_once(
    path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = new_jobs(store, 4)
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    leased = await worker.exactly(4)
    await worker.settle(*map(fail, leased))
    change(path, "update reprieve_event set data = x'c1' where seq in (2, 3, 5)")
    with caplog.at_level(logging.WARNING, "reprieve"):
        for _ in range(3):
            assert [position for position, _ in await store.events()] == [4]
            assert [position for position, _ in await store.events(limit=1)] == [4]
            assert await store.events(after=4) == []
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1
    assert await worker.settle(fail(leased[0])) == ["refused"]
    await store.close()


async def test_succeeded_jobs_that_cannot_be_read_are_left_out_and_pruned(path: Path, store: Store) -> None:
    worker = await Worker.open(store)
    for _ in range(3):
        await enqueue(store, *new_jobs(store, 2))
        await worker.settle(*map(succeed, await worker.exactly(2)))
    change(path, "update reprieve_finished set jobs = x'92c0c0' where seq = 2")
    change(path, "update reprieve_finished set jobs = x'c1' where seq = 3")
    assert len(await find_all(store, Filter(statuses=frozenset({"succeeded"})))) == 2
    for kept in (3, 1):
        while not (await store.prune(Retention(now=START, succeeded=kept))).is_all:
            pass
    while not (await store.prune(Retention(now=START + 2 * DAY))).is_all:
        pass
    assert (await store.tally("status", Filter(), START)).counts == {}
    await store.close()


async def test_cancel_request_that_cannot_be_read_is_a_request_all_the_same(path: Path, store: Store) -> None:
    first, second = await enqueued(store), await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.exactly(2)
    for job in (first, second):
        await store.annotate([Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST)])
    change(path, "update reprieve_annotation set cancel = x'c1' where id = (select min(id) from reprieve_annotation)")
    found = [job.cancel_request for job in await find_all(store, Filter())]
    assert [request is not None for request in found] == [True, True]
    assert await worker.settle(*map(fail, leased)) == ["applied"] * 2
    assert {job.state for job in await find_all(store, Filter())} == {"cancelled"}
    await store.close()


async def test_doctor_counts_records_that_cannot_be_read_before_and_after_they_are_set_aside(
    path: Path, store: Store
) -> None:
    await enqueue(store, *new_jobs(store, 3))

    def seen() -> tuple[str, str]:
        (finding,) = [one for one in diagnostics_for(f"sqlite:///{path}").examine(START) if one.name == "records"]
        return finding.level, finding.seen

    assert seen() == ("ok", "3 read")
    change(path, "update reprieve_job set record = x'c1' where id = (select min(id) from reprieve_job)")
    assert seen() == ("warn", "1 of 3 cannot be read")
    worker = await Worker.open(store)
    lost = next(job for job in await worker.exactly(3) if unreadable_record(job))
    await worker.settle(kill(replace(lost, charged=0), death="undecodable"))
    assert seen() == ("warn", "1 of 3 cannot be read")
    await store.close()
