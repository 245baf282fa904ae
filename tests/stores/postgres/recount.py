"""The recount: everything that the PostgreSQL store keeps twice, counted again from the rows that it is kept of."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg

from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.postgres.leases import unpack_lease

_decode_jobs = msgspec.msgpack.Decoder(list[Job]).decode

# Each answers the rows that break a promise; with its words they make the complaint.
_RULES = {
    "a lane's counters and the uncounted enqueues are not its rows": """
        select * from (
            select s.id,
                (s.ready + coalesce(l.ready, 0), s.scheduled + coalesce(l.scheduled, 0),
                 s.retrying + coalesce(l.retrying, 0), s.parked + coalesce(l.parked, 0), s.dead, s.cancelled) as kept,
                ((select count(*) from ready where ready.lane = s.id) + (
                    select count(*) from job where job.lane = s.id and state = 3
                        and uuid_send(id) not in (select leased_ids())
                        and not exists (select 1 from ready where ready.lane = s.id and ready.id = job.id)),
                 (select count(*) from delayed where delayed.lane = s.id and waiting_for = 1),
                 (select count(*) from delayed where delayed.lane = s.id and waiting_for = 2),
                 (select count(*) from delayed where delayed.lane = s.id and waiting_for in (3, 4)),
                 (select count(*) from ended where ended.lane = s.id and state = 1),
                 (select count(*) from ended where ended.lane = s.id and state = 2)) as counted
            from lane as s left join (
                select lane, sum(ready)::int8 as ready, sum(scheduled)::int8 as scheduled,
                       sum(retrying)::int8 as retrying, sum(parked)::int8 as parked
                from uncounted_enqueue group by lane
            ) as l on l.lane = s.id
        ) as lanes where kept <> counted""",
    "the counters of a name are not the sums of its lanes": """
        select subject, name, sum(ready), sum(scheduled), sum(retrying), sum(parked), sum(dead), sum(cancelled) from (
            select subject, name, ready, scheduled, retrying, parked, dead, cancelled from name_count
            union all
            select 'queue', queue_name, -ready, -scheduled, -retrying, -parked, -dead, -cancelled from lane
            union all select 'task', task, -ready, -scheduled, -retrying, -parked, -dead, -cancelled from lane
            union all
            select 'dependency', dependency, -ready, -scheduled, -retrying, -parked, -dead, -cancelled from lane
        ) as both_kinds group by subject, name
        having sum(ready) <> 0 or sum(scheduled) <> 0 or sum(retrying) <> 0 or sum(parked) <> 0 or sum(dead) <> 0
            or sum(cancelled) <> 0""",
    "a job lost its lane": """
        select id, lane from job where state <> 4 and lane not in (select id from lane)
            and lane not in (select lane from uncounted_enqueue)""",
    "a tenant does not count its lanes": """
        select id, lanes from tenant where lanes <> (select count(*) from lane where lane.tenant = tenant.id)""",
    "a limiter does not count its lanes": """
        select id, subject, name, lanes from limiter where lanes <> (
            select count(*) from lane
            where limiter.id in (task_limiter, dependency_limiter, group_limiter, pair_limiter))""",
    "a queue does not count its tenants": """
        select id, tenants from queue where tenants <> (select count(*) from tenant where tenant.queue = queue.id)""",
    "a row of ready is before the ready watermark of its lane": """
        select r.* from ready as r join lane as s on s.id = r.lane
        where r.ready_at < s.ready_watermark""",
    "a fresh job is before the fresh watermark and was not taken": """
        select job.id, job.lane from job join lane on lane.id = job.lane
        where state = 3 and job.id <= lane.fresh_watermark and uuid_send(job.id) not in (select leased_ids())
            and not exists (select 1 from ready where ready.lane = lane.id and ready.id = job.id)
            and not exists (select 1 from uncounted_enqueue as u where u.lane = lane.id and u.lowest_id <= job.id)""",
    "a fresh job after the fresh watermark was taken": """
        select job.id, job.lane from job join lane on lane.id = job.lane
        where state = 3 and job.id > lane.fresh_watermark and uuid_send(job.id) in (select leased_ids())""",
    "a ready row has no waiting job on its lane": """
        select ready.* from ready left join job on job.id = ready.id
        where job.state is null or job.state not in (0, 3) or job.lane <> ready.lane""",
    "a delayed row has not the names of its lane": """
        select delayed.* from delayed join lane on lane.id = delayed.lane
        where delayed.waiting_for > 1 and (delayed.tenant, delayed.task, delayed.dependency)
                is distinct from (lane.tenant_name, lane.task, lane.dependency)
            or delayed.waiting_for <= 1 and coalesce(delayed.tenant, delayed.code, delayed.fingerprint) is not null""",
    "a delayed row has no waiting job on its lane": """
        select delayed.* from delayed left join job on job.id = delayed.id
        where job.state is distinct from 0 or job.lane <> delayed.lane or job.due_at <> delayed.due_at""",
    "a delayed row is before the due watermark of its queue": """
        select delayed.* from delayed join queue on queue.id = delayed.queue
        where delayed.due_at < queue.due_watermarks[delayed.waiting_for]
            and not exists (select 1 from uncounted_enqueue as u
                where u.lane = delayed.lane and u.first_due_at <= delayed.due_at)""",
    "an ended row has no ended job on its lane": """
        select ended.queue, ended.state, ended.id from ended
        left join job on job.id = ended.id left join lane on lane.id = ended.lane
        where job.state is distinct from ended.state or job.lane <> ended.lane
            or lane.queue is distinct from ended.queue""",
    "an ended job is not in exactly one ended row": """
        select id, state from job
        where state in (1, 2) and (select count(*) from ended where ended.id = job.id) <> 1""",
    "an ended row has other names than its lane": """
        select ended.id, ended.tenant, ended.task, ended.dependency from ended join lane on lane.id = ended.lane
        where (ended.tenant, ended.task, ended.dependency) <> (lane.tenant_name, lane.task, lane.dependency)""",
    "a cause does not count its dead jobs": """
        with dead as (select tenant, task, death, code, fingerprint, ended_at as at from ended where state = 1),
        listed as (
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
        select id, running, weight, load from tenant where load <> trunc(running * 1000000 / weight)::int8""",
    "a lane is open without ready jobs, or closed with some": """
        select id, is_open, ready, blocked_by from lane where is_open <> (ready > 0 and blocked_by = 0)""",
    "a limiter that blocks a lane does not know it": """
        select lane.id, blocked_by from lane where blocked_by <> 0
            and not exists (select 1 from limiter where limiter.id = lane.blocked_by and has_blocked_lanes)""",
    "the tenant of an open lane is neither a candidate nor blocked": """
        select lane.id, tenant.id from lane join tenant on tenant.id = lane.tenant
        where is_open and not is_candidate and blocked = 0""",
    "a lease has no session": """
        select lease.session from lease left join session on session.id = lease.session where session.id is null""",
    "a lane lost its queue, tenant or limiter": """
        select lane.id from lane
        left join queue on queue.id = lane.queue left join tenant on tenant.id = lane.tenant
        left join limiter on limiter.id = lane.task_limiter
        where queue.name is distinct from lane.queue_name or tenant.name is distinct from lane.tenant_name
            or tenant.queue is distinct from lane.queue or limiter.name is distinct from lane.task""",
}


def complaints(url: str) -> list[str]:
    """Return what is wrong with a store, in words; nothing when all is well. Others may go on writing meanwhile."""
    with address_of(url).connect() as tx:
        if tx.execute("select to_regclass('schema_version')").fetchone() == (None,):
            return []
        tx.execute("begin isolation level repeatable read read only")
        found = [f"{words}: {row}" for words, sql in _RULES.items() for row in tx.execute(with_hashed_names(sql))]
        leased = list(_leased(tx))
        return [*found, *_lease_complaints(tx, leased), *_running_complaints(tx, leased), *_finished_complaints(tx)]


def stored_ids(url: str) -> set[str]:
    """Return the id of every job that a store holds, those that succeeded as well."""
    with address_of(url).connect() as tx:
        living = {job for (job,) in tx.execute("select id::text from job")}
        return living | {job.id for (jobs,) in tx.execute("select jobs from finished") for job in _decode_jobs(jobs)}


def _leased(tx: psycopg.Connection[Any]) -> Iterator[tuple[int, str, int]]:
    """Return session, job and lane of everything that is leased."""
    for session, jobs in tx.execute("select session, jobs from lease"):
        for job, (lane, _) in unpack_lease(jobs).items():
            yield session, id_from_bytes(job), lane


def _lease_complaints(tx: psycopg.Connection[Any], leased: list[tuple[int, str, int]]) -> Iterator[str]:
    jobs = {job: (state, lane) for job, state, lane in tx.execute("select id::text, state, lane from job")}
    times = Counter(job for _, job, _ in leased)
    for session, job, lane in leased:
        if jobs.get(job) not in ((0, lane), (3, lane)):
            yield f"session {session} holds job {job} of lane {lane}, which is {jobs.get(job)}"
    places: Counter[str] = Counter(times)
    places.update(job for (job,) in tx.execute("select id::text from ready union all select id::text from delayed"))
    for job, (state, _) in jobs.items():
        if state == 0 and places[job] != 1:
            yield f"job {job} waits or runs in {places[job]} places"
    for (job,) in tx.execute("select id::text from annotation"):
        if not times[job]:
            yield f"an annotation of job {job}, which does not run"


def _running_complaints(tx: psycopg.Connection[Any], leased: list[tuple[int, str, int]]) -> Iterator[str]:
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


def _finished_complaints(tx: psycopg.Connection[Any]) -> Iterator[str]:
    times: Counter[str] = Counter()
    for seq, count, ids, jobs in tx.execute("select seq, kept, ids::text[], jobs from finished"):
        if [job.id for job in _decode_jobs(jobs)] != ids[len(ids) - count :]:
            yield f"finished row {seq} counts {count} and names others than it holds"
        times.update(ids)
    living = {job for (job,) in tx.execute("select id::text from job")}
    for job, count in times.items():
        if count > 1 or job in living:
            yield f"job {job} succeeded {count} times, and {'lives' if job in living else 'is gone'}"
