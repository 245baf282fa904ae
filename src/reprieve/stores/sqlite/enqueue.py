"""New jobs: their rows, their place in line, and the counters of their lanes."""

from collections.abc import Sequence

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.errors import StoreError
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import COUNTERS, NUMBERS, key_of
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.places import Places
from reprieve.stores.sqlite.rows import id_of, pack, split_id
from reprieve.stores.sqlite.statements import Tx, run, statements

_COLUMNS = tuple(dict.fromkeys(COUNTERS))


def enqueue(tx: Tx, places: Places, jobs: Sequence[Job], now: int) -> list[str]:
    """Store new jobs, and answer the id under which each is known."""
    ids = [split_id(job.id) for job in jobs]
    rows = [row for row, _ in ids]
    stored = _stored(tx, rows, jobs)
    known = _take_keys(tx, jobs, rows, stored, now) if any(job.key for job in jobs) else {}
    fresh = []
    for number, ((row, middle), job) in enumerate(zip(ids, jobs, strict=True)):
        if row not in stored and number not in known:
            stored.add(row)
            fresh.append((row, middle, job))
    _insert(tx, places, fresh, now)
    return [known.get(number, job.id) for number, job in enumerate(jobs)] if known else [job.id for job in jobs]


def _insert(tx: Tx, places: Places, fresh: Sequence[tuple[int, bytes, Job]], now: int) -> None:
    sql = statements("enqueue")
    job_rows, ready_rows, delayed_rows = [], [], []
    counts: dict[int, list[int]] = {}
    tenants: set[int] = set()
    for row, middle, job in fresh:
        lane, place = places.of_job(tx, job)
        wait = NUMBERS[job.waiting_for]
        job_rows.append((row, lane, job.version, wait, job.due_at, pack(job, row, middle)))
        count = counts.get(lane)
        if count is None:
            count = counts[lane] = [0] * len(_COLUMNS)
        if job.due_at <= now:
            ready_rows.append((lane, row))
            count[0] += 1
            tenants.add(place.tenant_id)
        else:
            # A job that is due later waits for its time, whatever else its caller said.
            wait = wait or NUMBERS["schedule"]
            delayed_rows.append((place.queue_id, wait, job.due_at, row, lane))
            count[_COLUMNS.index(COUNTERS[wait])] += 1
    run(tx, sql["jobs"], job_rows)
    run(tx, sql["ready"], ready_rows)
    run(tx, sql["delayed"], delayed_rows)
    run(tx, sql["count"], [(lane, *count) for lane, count in counts.items()])
    run(tx, sql["open"], [(lane,) for lane, (ready, *_) in counts.items() if ready])
    run(tx, sql["make_candidates"], [(tenant,) for tenant in tenants])


def _stored(tx: Tx, ids: list[int], jobs: Sequence[Job]) -> set[int]:
    """Return which of the jobs are stored already: this is a repeat."""
    sql = statements("enqueue")
    # Ids grow with time, so only one that is not newer than all others can itself be stored, or have finished.
    newest, newest_finished = tx.execute(sql["newest"]).fetchone()
    suspects = [row for row in ids if row <= newest]
    stored: dict[int, str] = {}
    if suspects:
        found = tx.execute(sql["known"], (msgspec.json.encode(suspects).decode(),)).fetchall()
        stored = {row: id_of(row, rec) for row, rec in found}
    for row in ids:
        for job in finished_jobs(tx, row) if row <= newest_finished else ():
            stored[row] = job.id
    for row, job in zip(ids, jobs, strict=True) if stored else ():
        # The same short id under another public id: two processes have drawn the same number, and were unlucky.
        if stored.get(row, job.id) != job.id:
            message = f"job id {job.id} collides with another, {stored[row]}; make a new one"
            raise StoreError(message)
    return set(stored)


def _take_keys(tx: Tx, jobs: Sequence[Job], ids: list[int], stored: set[int], now: int) -> dict[int, str]:
    """Take the keys of new jobs; answer, for those whose key is taken, the id of the job that has it."""
    sql = statements("enqueue")
    keyed = {number: key_of(job) for number, job in enumerate(jobs) if job.key and ids[number] not in stored}
    holders: dict[bytes, str] = {}
    for start in range(0, len(keyed), 500):
        part = list(keyed.values())[start : start + 500]
        placeholders = ",".join("?" * len(part))
        rows = tx.execute(sql["keys"].replace("{placeholders}", placeholders), part).fetchall()
        # Somebody else's connection may be told to answer texts as bytes.
        holders |= {
            key: holder if isinstance(holder, str) else bytes(holder).decode()
            for key, holder, expires, is_stored in rows
            if expires > now or is_stored
        }
    known: dict[int, str] = {}
    taken: dict[bytes, tuple[bytes, str, int, int]] = {}
    for number, key in keyed.items():
        job = jobs[number]
        if key in holders:
            known[number] = holders[key]
        else:
            holders[key] = job.id
            ttl = KEY_RETENTION_SECONDS if job.key_ttl is None else job.key_ttl
            taken[key] = (key, job.id, ids[number], now + milliseconds(ttl))
    run(tx, sql["take_keys"], list(taken.values()))
    return known
