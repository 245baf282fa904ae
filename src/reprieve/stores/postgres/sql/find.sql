-- name: jobs
select id, state, version, waiting_for, due_at, lane,
       case when %(lanes)s::int8[] is null or lane = any (%(lanes)s::int8[]) then record end as record
from job where id > %(after)s::uuid order by id limit %(most)s;

-- name: jobs_newest
select id, state, version, waiting_for, due_at, lane,
       case when %(lanes)s::int8[] is null or lane = any (%(lanes)s::int8[]) then record end as record
from job where id < %(after)s::uuid order by id desc limit %(most)s;

-- name: ended
select queue, state, ended_at, id from ended
where (queue, state, ended_at, id) > (%(queue)s, %(state)s, %(at)s, %(id)s::uuid)
  and (%(wanted)s::int8 is null or queue = %(wanted)s::int8) and (%(death)s = '' or death = %(death)s)
  and (not %(is_dead)s or state = 1) and (not %(is_cancelled)s or state = 2) and (%(code)s = '' or code = %(code)s)
  and (%(fingerprint)s = '' or fingerprint = %(fingerprint)s)
order by queue, state, ended_at, id limit 100;

-- name: ended_newest
select queue, state, ended_at, id from ended
where (queue, state, ended_at, id) < (%(queue)s, %(state)s, %(at)s, %(id)s::uuid)
  and (%(wanted)s::int8 is null or queue = %(wanted)s::int8) and (%(death)s = '' or death = %(death)s)
  and (not %(is_dead)s or state = 1) and (not %(is_cancelled)s or state = 2) and (%(code)s = '' or code = %(code)s)
  and (%(fingerprint)s = '' or fingerprint = %(fingerprint)s)
order by queue desc, state desc, ended_at desc, id desc limit 100;

-- name: end_of
-- The index has no order by id alone: only asked for a job whose record cannot be read.
select ended_at, death from ended where queue = %(queue)s and state = %(state)s and id = %(id)s::uuid;

-- name: finished
select seq, jobs from finished where seq >= %(seq)s and kept > 0 order by seq limit 1;

-- name: finished_before
select seq from finished where finished_at < %(since)s order by seq desc limit 1;

-- name: finished_newest
select seq, jobs from finished where seq <= %(seq)s and kept > 0 order by seq desc limit 1;

-- name: leases
select s.name, l.leased_at, l.jobs from lease as l join session as s on s.id = l.session;

-- name: leases_of_session
select s.name, l.leased_at, l.jobs from session as s join lease as l on l.session = s.id and l.claim >= s.first_lease
where s.name = %(session)s;

-- name: leases_of_jobs
select s.name, l.leased_at, l.jobs from lease as l join session as s on s.id = l.session
where exists (select 1 from unnest(%(ids)s::uuid[]) as v (id) where position(uuid_send(v.id) in l.jobs) > 0);

-- name: held
select id from limiter where permits = 0;

-- name: lanes
with lanes as (
    select id, queue_name, tenant_name, task, dependency from lane
    union
    select lane, queue, tenant, task, dependency from uncounted_enqueue
)
select id from lanes
where (%(queue)s = '' or queue_name = %(queue)s) and (%(tenant)s::text is null or tenant_name = %(tenant)s::text)
  and (%(task)s = '' or task = %(task)s) and (%(dependency)s::text is null or dependency = %(dependency)s::text);

-- name: counts
select id, sum(ready)::int8, sum(scheduled)::int8, sum(retrying)::int8, sum(parked)::int8, sum(dead)::int8,
       sum(cancelled)::int8
from (
    select id, ready, scheduled, retrying, parked, dead, cancelled from lane
    union all
    select lane, ready, scheduled, retrying, parked, 0, 0 from uncounted_enqueue
) as counted group by id;

-- name: due
select d.lane, d.waiting_for, count(*)
from (select id from queue union select hash_id('queue', queue) from uncounted_enqueue) as q
cross join (values (1), (2), (3), (4)) as waits (waiting_for)
join delayed as d on d.queue = q.id and d.waiting_for = waits.waiting_for and d.due_at <= %(now)s
group by d.lane, d.waiting_for;

-- name: finished_counts
select q.name, sum(f.kept)::int8 from finished as f join queue as q on q.id = f.queue
where f.kept > 0 and (%(queue)s = '' or q.name = %(queue)s) group by q.name;

-- name: all_finished
select jobs from finished where kept > 0;

-- name: events
select seq, data from event where seq > %(after)s order by seq limit %(limit)s;

-- name: events_of
select seq, data from event where job = %(job)s::uuid and seq > %(after)s order by seq limit %(limit)s;

-- name: progress
select progress from annotation where id = %(id)s;

-- name: result
select value from result where id = %(id)s;
