"""What a lane knows of the deadlines of its fresh jobs, and that far deadlines cost nothing."""

import sqlite3
from pathlib import Path

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter
from reprieve.stores.sql.expiring import MAX_LEFTOVER_ROWS, SPAN_TOLERANCE_MS, LaneSpan
from reprieve.testing.clock import FakeClock
from reprieve.testing.conformance.stage import DAY, HOUR, MINUTE, SECOND, START, Worker, new_job
from reprieve.worker.expiry import expire_some

EMPTY = LaneSpan(lane=1, ready=0, span=None, swept_until=0, expires_at=None)
BUSY = LaneSpan(lane=1, ready=9, span=HOUR, swept_until=START, expires_at=START + HOUR)


def test_an_empty_lane_takes_the_span_of_its_first_job() -> None:
    after, others = EMPTY.with_jobs([(START, START + HOUR), (START + 5, START + 5 + HOUR)])
    assert (after.span, after.expires_at, others) == (HOUR + SPAN_TOLERANCE_MS, START + HOUR + SPAN_TOLERANCE_MS, [])
    again, others = LaneSpan(1, 0, HOUR, START, START + HOUR).with_jobs([(START + 5, START + 5 + DAY)])
    assert (again.span, again.expires_at, others) == (DAY + SPAN_TOLERANCE_MS, START + HOUR, [])


def test_jobs_with_another_span_and_late_ones_need_rows_of_their_own() -> None:
    at = START + 5
    jobs = [
        (at, at + HOUR),
        (at, at + HOUR - 2 * SPAN_TOLERANCE_MS),
        (at, at + HOUR + 1),
        (at, at + HOUR - 2 * SPAN_TOLERANCE_MS - 1),
        (START, START + HOUR),
    ]
    after, others = BUSY.with_jobs(jobs)
    assert others == [2, 3, 4]
    assert (after.span, after.expires_at) == (HOUR, START + HOUR)


async def test_jobs_of_one_policy_have_no_row_of_their_own(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    for number in range(20):
        at = START + number * SECOND
        await store.enqueue([new_job(store, at, deadline_at=at + DAY) for _ in range(5)], at)
    assert _rows(tmp_path) == 0
    await store.enqueue([new_job(store, START + MINUTE, deadline_at=START + HOUR)], START + MINUTE)
    assert _rows(tmp_path) == 1
    assert len((await store.expire(START + HOUR + 3 * SECOND)).jobs) == 1
    assert _rows(tmp_path) == 0
    await store.close()


async def test_a_job_that_is_claimed_leaves_no_row_behind(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    await store.enqueue([new_job(store, due_at=START + SECOND, deadline_at=START + DAY)], START)
    assert _rows(tmp_path) == 1
    worker = await Worker.open(store)
    assert len(await worker.take(1, START + SECOND)) == 1
    assert _rows(tmp_path) == 0
    await store.close()


async def test_a_worker_goes_on_at_once_while_rows_of_jobs_that_ended_are_left(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    late = new_job(store, due_at=START + HOUR, deadline_at=START + MINUTE)
    await store.enqueue([late], START)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with connection:
        rows = [(START + number, number) for number in range(2 * MAX_LEFTOVER_ROWS)]
        connection.executemany("insert into reprieve_expiring (at, id) values (?, ?)", rows)
    connection.close()
    clock = FakeClock(START + MINUTE)
    assert [await expire_some(store, clock) for _ in range(2)] == [True, False]
    assert (await store.tally("status", Filter(), START + MINUTE)).counts.get("dead") == 1
    assert _rows(tmp_path) == 0
    await store.close()


def _rows(folder: Path) -> int:
    connection = sqlite3.connect(folder / "jobs.db")
    try:
        return int(connection.execute("select count(*) from reprieve_expiring").fetchone()[0])
    finally:
        connection.close()
