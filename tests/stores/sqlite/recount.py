"""The recount: everything that the SQLite store keeps twice, counted again from the rows that it is kept of."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from reprieve.core.job import Job
from reprieve.stores.sqlite.rows import id_of, row_id

_decode_jobs = msgspec.msgpack.Decoder(list[Job]).decode
_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode

# Each answers the rows that break a promise; with its words they make the complaint.
_RULES = {
    "a shelf's counters are not its rows": """
        select * from (
            select shelf.id,
                ready, (select count(*) from ready where ready.shelf = shelf.id) as counted_ready,
                scheduled, (select count(*) from delayed where delayed.shelf = shelf.id and wait = 1) as counted_1,
                retrying, (select count(*) from delayed where delayed.shelf = shelf.id and wait = 2) as counted_2,
                parked, (select count(*) from delayed where delayed.shelf = shelf.id and wait in (3, 4)) as counted_3,
                dead, (select count(*) from ended where ended.shelf = shelf.id and state = 1) as counted_dead
            from shelf)
        where (ready, scheduled, retrying, parked, dead)
            <> (counted_ready, counted_1, counted_2, counted_3, counted_dead)""",
    "a ready row has no waiting job on its shelf": """
        select ready.* from ready left join job on job.id = ready.id
        where job.state is not 0 or job.shelf <> ready.shelf""",
    "a delayed row has no waiting job on its shelf": """
        select delayed.* from delayed left join job on job.id = delayed.id left join shelf on shelf.id = delayed.shelf
        where job.state is not 0 or job.shelf <> delayed.shelf or job.due <> delayed.due
            or shelf.queue is not delayed.queue""",
    "an ended row has no ended job on its shelf": """
        select ended.queue, ended.state, ended.id from ended
        left join job on job.id = ended.id left join shelf on shelf.id = ended.shelf
        where job.state is not ended.state or job.shelf <> ended.shelf or shelf.queue is not ended.queue""",
    "an ended job is not in exactly one ended row": """
        select id, state from job where state <> 0 and (select count(*) from ended where ended.id = job.id) <> 1""",
    "a load is not what runs for its weight": """
        select id, running, weight, load from tenant where load <> cast(running * 1000000 / weight as integer)""",
    "a shelf is open without ready jobs, or closed with some": """
        select id, is_open, ready, aside from shelf where is_open <> (ready > 0 and aside = 0)""",
    "a shelf waits for a gate that does not know it": """
        select shelf.id, aside from shelf where aside > 0
            and not exists (select 1 from gate where gate.id = shelf.aside and gate.aside > 0)""",
    "an open shelf's tenant is neither asked nor blocked": """
        select shelf.id, tenant.id from shelf join tenant on tenant.id = shelf.tenant
        where is_open = 1 and ringed = 0 and blocked = 0""",
    "a lease has no session": """
        select lease.id from lease left join session on session.id = lease.id >> 32 where session.id is null""",
    "a shelf lost its queue, tenant or gate": """
        select shelf.id from shelf
        left join queue on queue.id = shelf.queue left join tenant on tenant.id = shelf.tenant
        left join gate on gate.id = shelf.task_gate
        where queue.id is null or tenant.queue is not shelf.queue or gate.name is not shelf.task""",
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
    """Answer what is wrong with a file, in words; nothing when all is well. Others may go on writing meanwhile."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        found = [f"integrity: {row[0]}" for row in tx.execute("pragma integrity_check") if row[0] != "ok"]
        for words, sql in _RULES.items():
            found += [f"{words}: {row}" for row in tx.execute(sql)]
        leased = list(_leased(tx))
        return [*found, *_lease_complaints(tx, leased), *_running_complaints(tx, leased), *_finished_complaints(tx)]


def stored_ids(path: Path) -> set[str]:
    """Answer the public id of every job that a file holds, those that succeeded as well."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        living = {id_of(row, rec) for row, rec in tx.execute("select id, rec from job")}
        return living | {job.id for (jobs,) in tx.execute("select jobs from finished") for job in _decode_jobs(jobs)}


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Answer every row of every table."""
    with closing(_connect(path)) as tx:
        tx.execute("begin")
        tables = [name for (name,) in tx.execute("select name from sqlite_master where type = 'table' order by name")]
        return {table: tx.execute(f"select * from {table} order by 1, 2").fetchall() for table in tables}  # noqa: S608 - our own tables


def _leased(tx: sqlite3.Connection) -> Iterator[tuple[int, int, int]]:
    """Answer lease, job and shelf of everything that is leased."""
    for lease, jobs in tx.execute("select id, jobs from lease"):
        for job, (shelf, _) in _decode_lease(jobs).items():
            yield lease, job, shelf


def _lease_complaints(tx: sqlite3.Connection, leased: list[tuple[int, int, int]]) -> Iterator[str]:
    jobs = {row: (state, shelf) for row, state, shelf in tx.execute("select id, state, shelf from job")}
    times = Counter(row for _, row, _ in leased)
    for lease, row, shelf in leased:
        if jobs.get(row) != (0, shelf):
            yield f"lease {lease} of job {row} on shelf {shelf}, which is {jobs.get(row)}"
    places: Counter[int] = Counter(times)
    places.update(row for (row,) in tx.execute("select id from ready union all select id from delayed"))
    for row, (state, _) in jobs.items():
        if state == 0 and places[row] != 1:
            yield f"job {row} waits or runs in {places[row]} places"
    for (row,) in tx.execute("select id from mark"):
        if not times[row]:
            yield f"a mark of job {row}, which does not run"


def _running_complaints(tx: sqlite3.Connection, leased: list[tuple[int, int, int]]) -> Iterator[str]:
    parts = {
        shelf: (tenant, gates)
        for shelf, tenant, *gates in tx.execute(
            "select shelf.id, tenant, queue.gate, task_gate, dependency_gate, group_gate "
            "from shelf join queue on queue.id = shelf.queue"
        )
    }
    running: dict[str, Counter[int]] = defaultdict(Counter)
    for _, _, shelf in leased:
        tenant, gates = parts[shelf]
        running["tenant"][tenant] += 1
        running["gate"].update(gate for gate in gates if gate)
    for table in ("tenant", "gate"):
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
