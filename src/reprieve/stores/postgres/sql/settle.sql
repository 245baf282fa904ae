-- Statements that take arrays take the columns of many rows, in the order in which the arrays are first named.

-- name: unleased
-- Subqueries that return a value instead of `exists`: those of `exists` the server may turn into a hash of the whole table.
select j.id, j.state, j.version, j.waiting_for, j.due_at, j.lane, j.record, order_at(j.sla_at, j.due_at, j.id) as ready_at,
       case
           when j.state in (1, 2) then 'ended'
           when (select l.id from lane as l where l.id = j.lane) is null then 'uncounted'
           when (
               select r.id from ready as r where r.lane = j.lane and r.ready_at = order_at(j.sla_at, j.due_at, j.id) and r.id = j.id
           ) is not null then 'ready'
           -- A fresh job up to the watermark was taken, or requeued: see requeue_late_commits.
           when j.state = 3 and j.id > (select l.fresh_watermark from lane as l where l.id = j.lane) then 'fresh'
           when (
               select d.id from delayed as d join lane as l on l.id = j.lane
               where d.queue = l.queue and d.waiting_for = greatest(j.waiting_for, 1) and d.id = j.id
                 and d.due_at = coalesce(j.due_at, ('x' || translate(left(j.id::text, 13), '-', ''))::bit(48)::int8)
           ) is not null then 'delayed'
           else 'running'
       end as location
from job as j where j.id = any (%(ids)s::uuid[]);

-- name: exists
select 1 from job where id = %(id)s::uuid;

-- name: event
select data from event where job = %(id)s::uuid and version = %(version)s;

-- name: remove_ready
delete from ready as r using unnest(%(lanes)s::int8[], %(ready_ats)s::int8[], %(ids)s::uuid[]) as v (lane, ready_at, id)
where r.lane = v.lane and r.ready_at = v.ready_at and r.id = v.id;

-- name: remove_delayed
delete from delayed as d
using unnest(%(queues)s::int8[], %(waits)s::int8[], %(due_ats)s::int8[], %(ids)s::uuid[]) as v (queue, waiting_for, due_at, id)
where d.queue = v.queue and d.waiting_for = v.waiting_for and d.due_at = v.due_at and d.id = v.id;

-- name: remove_ended
delete from ended as e
using unnest(%(queues)s::int8[], %(states)s::int8[], %(ended_ats)s::int8[], %(ids)s::uuid[]) as v (queue, state, ended_at, id)
where e.queue = v.queue and e.state = v.state and e.ended_at = v.ended_at and e.id = v.id
returning e.state, e.tenant, e.task, e.dependency, e.death, e.code, e.fingerprint;

-- name: update_jobs
-- The ids are given twice: as a condition they lead through the index, however small the server believes the table to be.
update job as j
set lane = v.lane, due_at = v.due_at, sla_at = v.sla_at, version = v.version, state = v.state, waiting_for = v.waiting_for, record = v.record
from unnest(%(ids)s::uuid[], %(lanes)s::int8[], %(due_ats)s::int8[], %(sla_ats)s::int8[], %(versions)s::int8[],
            %(states)s::int8[], %(waits)s::int8[], %(records)s::bytea[])
     as v (id, lane, due_at, sla_at, version, state, waiting_for, record)
where j.id = v.id and j.id = any (%(ids)s::uuid[]);

-- name: add_ready
insert into ready (lane, ready_at, id) select * from unnest(%(lanes)s::int8[], %(ready_ats)s::int8[], %(ids)s::uuid[]);

-- name: add_delayed
insert into delayed (queue, waiting_for, due_at, id, lane, sla_at, tenant, task, dependency, code, fingerprint)
select v.* from unnest(%(queues)s::int8[], %(waits)s::int8[], %(due_ats)s::int8[], %(ids)s::uuid[], %(lanes)s::int8[],
                       %(sla_ats)s::int8[], %(tenants)s::text[], %(tasks)s::text[], %(dependencies)s::text[],
                       %(codes)s::text[], %(fingerprints)s::text[]) as v,
                lower_due_watermarks(%(queues)s::int8[], %(due_ats)s::int8[]);

-- name: add_ended
insert into ended (queue, state, ended_at, id, lane, tenant, task, dependency, death, code, fingerprint)
select * from unnest(%(queues)s::int8[], %(states)s::int8[], %(ended_ats)s::int8[], %(ids)s::uuid[], %(lanes)s::int8[],
                     %(tenants)s::text[], %(tasks)s::text[], %(dependencies)s::text[],
                     %(deaths)s::text[], %(codes)s::text[], %(fingerprints)s::text[]);

-- name: add_events
insert into event (at, job, version, data)
select v.* from unnest(%(ats)s::int8[], %(jobs)s::uuid[], %(versions)s::int8[], %(data)s::bytea[]) as v;

-- name: add_results
insert into result (id, expires_at, value)
select * from unnest(%(ids)s::uuid[], %(expires_ats)s::int8[], %(values)s::bytea[])
on conflict (id) do update set expires_at = excluded.expires_at, value = excluded.value;

-- name: count
update lane as l
set ready = l.ready + v.ready, scheduled = l.scheduled + v.scheduled, retrying = l.retrying + v.retrying,
    parked = l.parked + v.parked, dead = l.dead + v.dead, cancelled = l.cancelled + v.cancelled,
    ready_watermark = least(l.ready_watermark, v.ready_watermark),
    is_open = l.ready + v.ready > 0 and l.blocked_by = 0
from json_to_recordset(%(rows)s::json) as v (
    id int8, ready int8, scheduled int8, retrying int8, parked int8, dead int8, cancelled int8, ready_watermark int8)
where l.id = v.id;

-- name: add_candidates
select add_candidates(%(tenants)s::int8[]);

-- name: release_slots
with tenants as (
    update tenant as t
    set running = t.running - v.count, load = trunc((t.running - v.count) * 1000000 / t.weight)::int8,
        is_candidate = t.is_candidate or t.blocked = 1, blocked = case t.blocked when 1 then 0 else t.blocked end,
        finish = case t.blocked when 1 then greatest(t.finish, (select clock from queue where queue.id = t.queue)) else t.finish end
    from unnest(%(tenants)s::int8[], %(tenant_counts)s::int8[]) as v (id, count) where t.id = v.id
), annotations as (
    delete from annotation where id = any (%(jobs)s::uuid[])
)
update limiter as g
set running = g.running - v.count, reopens_at = case when g.has_blocked_lanes then 0 else g.reopens_at end
from unnest(%(limiters)s::int8[], %(limiter_counts)s::int8[]) as v (id, count) where g.id = v.id;

-- name: damage
update job set record = %(record)s where id = %(id)s::uuid;
