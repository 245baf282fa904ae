"""The recount: everything that the SQLite store keeps twice, counted again from the rows that it is kept of."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from reprieve.core.job import Job
from reprieve.stores.sqlite.leases import unpack_lease
from reprieve.stores.sqlite.rows import id_of, row_id

_decode_jobs = msgspec.msgpack.Decoder(list[Job]).decode

# Each selects the rows that break a promise, which is described by its key.
_RULES = {
    "a lane's counters are not its rows": """
        select * from (
            select lane.id,
                ready, (select count(*) from ready where ready.lane = lane.id) as counted_ready,
                scheduled, (select count(*) from delayed where delayed.lane = lane.id and wait = 1) as counted_1,
                retrying, (select count(*) from delayed where delayed.lane = lane.id and wait = 2) as counted_2,
                parked, (select count(*) from delayed where delayed.lane = lane.id and wait in (3, 4)) as counted_3,
                dead, (select count(*) from ended where ended.lane = lane.id and state = 1) as counted_dead,
                cancelled, (select count(*) from ended where ended.lane = lane.id and state = 2) as counted_cancelled
            from lane)
        where (ready, scheduled, retrying, parked, dead, cancelled)
            <> (counted_ready, counted_1, counted_2, counted_3, counted_dead, counted_cancelled)""",
    "the counters of a name are not the sums of its lanes": """
        select subject, name, sum(ready), sum(scheduled), sum(retrying), sum(parked), sum(dead), sum(cancelled) from (
            select subject, name, ready, scheduled, retrying, parked, dead, cancelled from name_count
            union all
            select 'queue', queue.name, -ready, -scheduled, -retrying, -parked, -dead, -cancelled
            from lane join queue on queue.id = lane.queue
            union all select 'task', task, -ready, -scheduled, -retrying, -parked, -dead, -cancelled from lane
            union all
            select 'dependency', dependency, -ready, -scheduled, -retrying, -parked, -dead, -cancelled from lane
        ) as both_kinds group by subject, name
        having sum(ready) <> 0 or sum(scheduled) <> 0 or sum(retrying) <> 0 or sum(parked) <> 0 or sum(dead) <> 0
            or sum(cancelled) <> 0""",
    "a job lost its lane": "select id, lane from job where lane not in (select id from lane)",
    "a tenant does not count its lanes": """
        select id, lanes from tenant where lanes <> (select count(*) from lane where lane.tenant = tenant.id)""",
    "a limiter does not count its lanes": """
        select id, subject, name, lanes from limiter where lanes <> (
            select count(*) from lane
            where limiter.id in (task_limiter, dependency_limiter, group_limiter, pair_limiter))""",
    "a queue does not count its tenants": """
        select id, tenants from queue where tenants <> (select count(*) from tenant where tenant.queue = queue.id)""",
    "a ready row has no waiting job on its lane": """
        select ready.* from ready left join job on job.id = ready.id
        where job.state is not 0 or job.lane <> ready.lane""",
    "a delayed row has not the names of its lane": """
        select delayed.* from delayed join lane on lane.id = delayed.lane join tenant on tenant.id = lane.tenant
        where delayed.wait > 1 and (delayed.tenant, delayed.task, delayed.dependency)
                is not (tenant.name, lane.task, lane.dependency)
            or delayed.wait <= 1 and coalesce(delayed.tenant, delayed.code, delayed.fingerprint) is not null""",
    "a delayed row has no waiting job on its lane": """
        select delayed.* from delayed left join job on job.id = delayed.id left join lane on lane.id = delayed.lane
        where job.state is not 0 or job.lane <> delayed.lane or job.due <> delayed.due
            or lane.queue is not delayed.queue""",
    "an ended row has no ended job on its lane": """
        select ended.queue, ended.state, ended.id from ended
        left join job on job.id = ended.id left join lane on lane.id = ended.lane
        where job.state is not ended.state or job.lane <> ended.lane or lane.queue is not ended.queue""",
    "an ended job is not in exactly one ended row": """
        select id, state from job where state <> 0 and (select count(*) from ended where ended.id = job.id) <> 1""",
    "an ended row has other names than its lane": """
        select ended.id, ended.tenant, ended.task, ended.dependency from ended
        join lane on lane.id = ended.lane join tenant on tenant.id = lane.tenant
        where (ended.tenant, ended.task, ended.dependency) <> (tenant.name, lane.task, lane.dependency)""",
    "a cause does not count its dead jobs": """
        with dead as (select tenant, task, death, code, fingerprint, at as at from ended where state = 1), listed as (
            select 'f' as kind, '' as scope, fingerprint as name, at from dead where fingerprint <> ''
            union all select 'c', '', code, at from dead where code <> ''
            union all select 't', '', tenant, at from dead
            union all select 'k', '', task, at from dead
            union all select 'x', '', death, at from dead
            union all select 'p', tenant, fingerprint, at from dead where fingerprint <> ''
            union all select 'h', fingerprint, tenant, at from dead where fingerprint <> ''
        ),
        counted as (select kind, scope, name, count(*) as count, max(at) as last_at from listed group by 1, 2, 3),
        kept as (select kind, scope, name, count, last_at from cause where fate = 0)
        select * from (select * from kept except select * from counted) as too_much
        union all
        select * from (select * from counted except select * from kept) as missing""",
    "a cause does not count the hours of its failures": """
        select kind, scope, name, count from cause where fate = 1 and kind <> 'h' and count <> (
            select coalesce(sum(h.count), 0) from cause_hour as h
            where h.fate = 1 and h.kind = cause.kind and h.scope = cause.scope and h.name = cause.name)""",
    "a load is not what runs for its weight": """
        select id, running, weight, load from tenant where load <> cast(running * 1000000 / weight as integer)""",
    "a lane is open without ready jobs, or closed with some": """
        select id, is_open, ready, blocked_by from lane where is_open <> (ready > 0 and blocked_by = 0)""",
    "a lane waits for a limiter that does not know it": """
        select lane.id, blocked_by from lane where blocked_by > 0
            and not exists (select 1 from limiter where limiter.id = lane.blocked_by and limiter.blocked_lanes > 0)""",
    "an open lane's tenant is neither asked nor blocked": """
        select lane.id, tenant.id from lane join tenant on tenant.id = lane.tenant
        where is_open = 1 and is_candidate = 0 and blocked = 0""",
    "a lease has no session": """
        select lease.id from lease left join session on session.id = lease.id >> 32 where session.id is null""",
    "a lane lost its queue, tenant or limiter": """
        select lane.id from lane
        left join queue on queue.id = lane.queue left join tenant on tenant.id = lane.tenant
        left join limiter on limiter.id = lane.task_limiter
        where queue.id is null or tenant.queue is not lane.queue or limiter.name is not lane.task""",
}


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file so that its tables go by their short names."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute(
        "select name from sqlite_master where name like 'reprieve_%' and type = 'table'"
    ).fetchall():
        connection.execute(f"create temp view {name.removeprefix('reprieve_')} as select * from {name}")  # noqa: S608 - names from the file itself
    return connection


def complaints(path: Path) -> list[str]:
    """Return the broken promises of a file, one line each; other processes may write meanwhile."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        found = [f"integrity: {row[0]}" for row in tx.execute("pragma integrity_check") if row[0] != "ok"]
        for words, sql in _RULES.items():
            found += [f"{words}: {row}" for row in tx.execute(sql)]
        leased = list(_leased(tx))
        return [*found, *_lease_complaints(tx, leased), *_running_complaints(tx, leased), *_finished_complaints(tx)]


def stored_ids(path: Path) -> set[str]:
    """Return the public id of every job that a file holds, those that succeeded as well."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        living = {id_of(row, record) for row, record in tx.execute("select id, record from job")}
        return living | {job.id for (jobs,) in tx.execute("select jobs from finished") for job in _decode_jobs(jobs)}


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of every table."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        tables = [name for (name,) in tx.execute("select name from sqlite_master where type = 'table' order by name")]
        return {table: tx.execute(f"select * from {table} order by 1, 2").fetchall() for table in tables}  # noqa: S608 - our own tables


def _leased(tx: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
    """Return lease, job and lane of everything that is leased."""
    for lease, jobs in tx.execute("select id, jobs from lease"):
        for job, leased in unpack_lease(jobs).items():
            yield lease, job, leased.lane


def _lease_complaints(tx: sqlite3.Connection, leased: list[tuple[int, int, int]]) -> Iterator[str]:
    jobs = {row: (state, lane) for row, state, lane in tx.execute("select id, state, lane from job")}
    times = Counter(row for _, row, _ in leased)
    for lease, row, lane in leased:
        if jobs.get(row) != (0, lane):
            yield f"lease {lease} of job {row} on lane {lane}, which is {jobs.get(row)}"
    places: Counter[int] = Counter(times)
    places.update(row for (row,) in tx.execute("select id from ready union all select id from delayed"))
    for row, (state, _) in jobs.items():
        if state == 0 and places[row] != 1:
            yield f"job {row} waits or runs in {places[row]} places"
    for (row,) in tx.execute("select id from annotation"):
        if not times[row]:
            yield f"an annotation of job {row}, which does not run"


def _running_complaints(tx: sqlite3.Connection, leased: list[tuple[int, int, int]]) -> Iterator[str]:
    parts = {
        lane: (tenant, limiters)
        for lane, tenant, *limiters in tx.execute(
            "select lane.id, tenant, queue.limiter, task_limiter, dependency_limiter, group_limiter, pair_limiter "
            "from lane join queue on queue.id = lane.queue"
        )
    }
    running: dict[str, Counter[int]] = defaultdict(Counter)
    for _, _, lane in leased:
        tenant, limiters = parts[lane]
        running["tenant"][tenant] += 1
        running["limiter"].update(limiter for limiter in limiters if limiter)
    for table in ("tenant", "limiter"):
        for row, count in tx.execute(f"select id, running from {table}"):  # noqa: S608 - one of two
            if running[table][row] != count:
                yield f"{table} {row} counts {count} running, and {running[table][row]} are leased"


def _finished_complaints(tx: sqlite3.Connection) -> Iterator[str]:
    times: Counter[int] = Counter()
    for seq, count, ids, jobs in tx.execute("select seq, count, ids, jobs from finished"):
        rows = [int.from_bytes(ids[start : start + 8], "big") for start in range(0, len(ids), 8)]
        if [row_id(job.id) for job in _decode_jobs(jobs)] != rows or len(rows) != count:
            yield f"finished row {seq} counts {count} and names others than it holds"
        times.update(rows)
    living = {row for (row,) in tx.execute("select id from job")}
    for row, count in times.items():
        if count > 1 or row in living:
            yield f"job {row} succeeded {count} times, and {'lives' if row in living else 'is gone'}"
