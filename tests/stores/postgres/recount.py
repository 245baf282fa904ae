"""The recount: everything that the PostgreSQL store keeps twice, counted again from the rows that it is kept of."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg

from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.leases import unpack_lease

_decode_jobs = msgspec.msgpack.Decoder(list[Job]).decode

# Each answers the rows that break a promise; with its words they make the complaint.
_RULES = {
    "a shelf's counters and the ledger are not its rows": """
        select * from (
            select s.id,
                (s.ready + coalesce(l.ready, 0), s.scheduled + coalesce(l.scheduled, 0),
                 s.retrying + coalesce(l.retrying, 0), s.parked + coalesce(l.parked, 0), s.dead) as kept,
                ((select count(*) from ready where ready.shelf = s.id) + (
                    select count(*) from job where job.shelf = s.id and state = 3
                        and uuid_send(id) not in (select leased())
                        and not exists (select 1 from ready where ready.shelf = s.id and ready.id = job.id)),
                 (select count(*) from delayed where delayed.shelf = s.id and wait = 1),
                 (select count(*) from delayed where delayed.shelf = s.id and wait = 2),
                 (select count(*) from delayed where delayed.shelf = s.id and wait in (3, 4)),
                 (select count(*) from ended where ended.shelf = s.id and state = 1)) as counted
            from shelf as s left join (
                select shelf, sum(ready)::int8 as ready, sum(scheduled)::int8 as scheduled,
                       sum(retrying)::int8 as retrying, sum(parked)::int8 as parked
                from ledger group by shelf
            ) as l on l.shelf = s.id
        ) as shelves where kept <> counted""",
    "a ready row is before the low mark": """
        select r.* from ready as r join shelf as s on s.id = r.shelf
        where r.id < s.back""",
    "a fresh job is before the low mark and was not taken": """
        select job.id, job.shelf from job join shelf on shelf.id = job.shelf
        where state = 3 and job.id <= shelf.low and uuid_send(job.id) not in (select leased())
            and not exists (select 1 from ready where ready.shelf = shelf.id and ready.id = job.id)
            and not exists (select 1 from ledger where ledger.shelf = shelf.id and ledger.low <= job.id)""",
    "a fresh job after the low mark was taken": """
        select job.id, job.shelf from job join shelf on shelf.id = job.shelf
        where state = 3 and job.id > shelf.low and uuid_send(job.id) in (select leased())""",
    "a ready row has no waiting job on its shelf": """
        select ready.* from ready left join job on job.id = ready.id
        where job.state is null or job.state not in (0, 3) or job.shelf <> ready.shelf""",
    "a delayed row has no waiting job on its shelf": """
        select delayed.* from delayed left join job on job.id = delayed.id
        where job.state is distinct from 0 or job.shelf <> delayed.shelf or job.due <> delayed.due""",
    "a delayed row is before the low mark of its queue": """
        select delayed.* from delayed join queue on queue.id = delayed.queue
        where delayed.due < queue.due_lows[delayed.wait]
            and not exists (select 1 from ledger where ledger.shelf = delayed.shelf and ledger.due <= delayed.due)""",
    "an ended row has no ended job on its shelf": """
        select ended.queue, ended.state, ended.id from ended
        left join job on job.id = ended.id left join shelf on shelf.id = ended.shelf
        where job.state is distinct from ended.state or job.shelf <> ended.shelf
            or shelf.queue is distinct from ended.queue""",
    "an ended job is not in exactly one ended row": """
        select id, state from job
        where state in (1, 2) and (select count(*) from ended where ended.id = job.id) <> 1""",
    "a load is not what runs for its weight": """
        select id, running, weight, load from tenant where load <> trunc(running * 1000000 / weight)::int8""",
    "a shelf is open without ready jobs, or closed with some": """
        select id, is_open, ready, aside from shelf where is_open <> (ready > 0 and aside = 0)""",
    "a shelf waits for a gate that does not know it": """
        select shelf.id, aside from shelf where aside <> 0
            and not exists (select 1 from gate where gate.id = shelf.aside and gate.aside)""",
    "an open shelf's tenant is neither asked nor blocked": """
        select shelf.id, tenant.id from shelf join tenant on tenant.id = shelf.tenant
        where is_open and not ringed and blocked = 0""",
    "a lease has no session": """
        select lease.session from lease left join session on session.id = lease.session where session.id is null""",
    "a shelf lost its queue, tenant or gate": """
        select shelf.id from shelf
        left join queue on queue.id = shelf.queue left join tenant on tenant.id = shelf.tenant
        left join gate on gate.id = shelf.task_gate
        where queue.name is distinct from shelf.queue_name or tenant.name is distinct from shelf.tenant_name
            or tenant.queue is distinct from shelf.queue or gate.name is distinct from shelf.task""",
}


def complaints(url: str) -> list[str]:
    """Answer what is wrong with a store, in words; nothing when all is well. Others may go on writing meanwhile."""
    with address_of(url).connect() as tx:
        if tx.execute("select to_regclass('layout')").fetchone() == (None,):
            return []
        tx.execute("begin isolation level repeatable read read only")
        found = [f"{words}: {row}" for words, sql in _RULES.items() for row in tx.execute(sql)]
        leased = list(_leased(tx))
        return [*found, *_lease_complaints(tx, leased), *_running_complaints(tx, leased), *_finished_complaints(tx)]


def stored_ids(url: str) -> set[str]:
    """Answer the id of every job that a store holds, those that succeeded as well."""
    with address_of(url).connect() as tx:
        living = {job for (job,) in tx.execute("select id::text from job")}
        return living | {job.id for (jobs,) in tx.execute("select jobs from finished") for job in _decode_jobs(jobs)}


def _leased(tx: psycopg.Connection[Any]) -> Iterator[tuple[int, str, int]]:
    """Answer session, job and shelf of everything that is leased."""
    for session, jobs in tx.execute("select session, jobs from lease"):
        for job, (shelf, _) in unpack_lease(jobs).items():
            yield session, id_from_bytes(job), shelf


def _lease_complaints(tx: psycopg.Connection[Any], leased: list[tuple[int, str, int]]) -> Iterator[str]:
    jobs = {job: (state, shelf) for job, state, shelf in tx.execute("select id::text, state, shelf from job")}
    times = Counter(job for _, job, _ in leased)
    for session, job, shelf in leased:
        if jobs.get(job) not in ((0, shelf), (3, shelf)):
            yield f"session {session} holds job {job} of shelf {shelf}, which is {jobs.get(job)}"
    places: Counter[str] = Counter(times)
    places.update(job for (job,) in tx.execute("select id::text from ready union all select id::text from delayed"))
    for job, (state, _) in jobs.items():
        if state == 0 and places[job] != 1:
            yield f"job {job} waits or runs in {places[job]} places"
    for (job,) in tx.execute("select id::text from mark"):
        if not times[job]:
            yield f"a mark of job {job}, which does not run"


def _running_complaints(tx: psycopg.Connection[Any], leased: list[tuple[int, str, int]]) -> Iterator[str]:
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


def _finished_complaints(tx: psycopg.Connection[Any]) -> Iterator[str]:
    times: Counter[str] = Counter()
    for seq, count, ids, jobs in tx.execute("select seq, count, ids::text[], jobs from finished"):
        if [job.id for job in _decode_jobs(jobs)] != ids[len(ids) - count :]:
            yield f"finished row {seq} counts {count} and names others than it holds"
        times.update(ids)
    living = {job for (job,) in tx.execute("select id::text from job")}
    for job, count in times.items():
        if count > 1 or job in living:
            yield f"job {job} succeeded {count} times, and {'lives' if job in living else 'is gone'}"
