-- name: resting
select j.id, j.state, j.version, j.wait, j.due, j.lane, j.rec,
       case
           when j.state in (1, 2) then 'ended'
           when exists (select 1 from ready as r where r.lane = j.lane and r.id = j.id) then 'ready'
           when j.state = 3 and uuid_send(j.id) not in (select leased()) then 'fresh'
           when exists (
               select 1 from delayed as d join lane as s on s.id = j.lane
               where d.queue = s.queue and d.wait = greatest(j.wait, 1) and d.id = j.id
                 and d.due = coalesce(j.due, ('x' || translate(left(j.id::text, 13), '-', ''))::bit(48)::int8)
           ) then 'delayed'
           else 'running'
       end
from job as j where j.id = any (%(ids)s::uuid[]);

-- name: exists
select 1 from job where id = %(id)s::uuid;

-- name: event
select data from event where job = %(id)s::uuid and version = %(version)s;

-- name: unready
delete from ready as t using unnest(%(a)s::int8[], %(b)s::uuid[]) as v (lane, id) where t.lane = v.lane and t.id = v.id;

-- name: undelay
delete from delayed as t using unnest(%(a)s::int8[], %(b)s::int8[], %(c)s::int8[], %(d)s::uuid[]) as v (queue, wait, due, id)
where t.queue = v.queue and t.wait = v.wait and t.due = v.due and t.id = v.id;

-- name: unend
delete from ended as t using unnest(%(a)s::int8[], %(b)s::int8[], %(c)s::int8[], %(d)s::uuid[]) as v (queue, state, at, id)
where t.queue = v.queue and t.state = v.state and t.at = v.at and t.id = v.id;

-- name: rewrite
update job as t set lane = v.lane, due = v.due, version = v.version, state = v.state, wait = v.wait, rec = v.rec
from unnest(%(a)s::uuid[], %(b)s::int8[], %(c)s::int8[], %(d)s::int8[], %(e)s::int8[], %(f)s::int8[], %(g)s::bytea[])
     as v (id, lane, due, version, state, wait, rec)
where t.id = v.id;

-- name: ready
insert into ready (lane, id) select * from unnest(%(a)s::int8[], %(b)s::uuid[]);

-- name: delay
insert into delayed (queue, wait, due, id, lane)
select v.* from lower_due(%(a)s::int8[], %(c)s::int8[]),
                unnest(%(a)s::int8[], %(b)s::int8[], %(c)s::int8[], %(d)s::uuid[], %(e)s::int8[]) as v;

-- name: end
insert into ended (queue, state, at, id, lane, death, code, fingerprint)
select * from unnest(%(a)s::int8[], %(b)s::int8[], %(c)s::int8[], %(d)s::uuid[], %(e)s::int8[],
                     %(f)s::text[], %(g)s::text[], %(h)s::text[]);

-- name: events
insert into event (at, job, version, data)
select v.* from unnest(%(a)s::int8[], %(b)s::uuid[], %(c)s::int8[], %(d)s::bytea[]) as v;

-- name: results
insert into result (id, expires_at, value)
select * from unnest(%(a)s::uuid[], %(b)s::int8[], %(c)s::bytea[])
on conflict (id) do update set expires_at = excluded.expires_at, value = excluded.value;

-- name: count
update lane as s
set ready = s.ready + v.ready, scheduled = s.scheduled + v.scheduled, retrying = s.retrying + v.retrying,
    parked = s.parked + v.parked, dead = s.dead + v.dead, back = least(s.back, v.back),
    is_open = s.ready + v.ready > 0 and s.aside = 0
from json_to_recordset(%(rows)s::json) as v (
    id int8, ready int8, scheduled int8, retrying int8, parked int8, dead int8, back uuid)
where s.id = v.id;

-- name: ring
select ring(%(tenants)s::int8[]);

-- name: release
with tenants as (
    update tenant as t
    set running = t.running - v.count, load = trunc((t.running - v.count) * 1000000 / t.weight)::int8,
        ringed = t.ringed or t.blocked = 1, blocked = case t.blocked when 1 then 0 else t.blocked end,
        finish = case t.blocked when 1 then greatest(t.finish, (select clock from queue where queue.id = t.queue)) else t.finish end
    from unnest(%(tenants)s::int8[], %(tenant_counts)s::int8[]) as v (id, count) where t.id = v.id
), annotations as (
    delete from annotation where id = any (%(jobs)s::uuid[])
)
update limiter as g set running = g.running - v.count, back_at = case when g.aside then 0 else g.back_at end
from unnest(%(limiters)s::int8[], %(limiter_counts)s::int8[]) as v (id, count) where g.id = v.id;
