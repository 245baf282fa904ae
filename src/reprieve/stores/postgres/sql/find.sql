-- Statements with {beyond} and {direction} read an index forwards or backwards. Those that take arrays read a range for each
-- of their elements and merge the first rows.

-- name: ready
-- A fresh job that was committed after jobs with a larger id were taken is not after the watermark of its lane: `uncounted` is
-- the lowest id that may be such a one.
select k.at, k.id::text, v.lane
from unnest(%(lane)s::int8[], %(uncounted)s::uuid[]) as v (lane, uncounted)
left join lane as l on l.id = v.lane
cross join lateral (
    select * from (
        (select r.ready_at as at, r.id from ready as r
         where r.lane = v.lane and (r.ready_at, r.id) {beyond} (%(at)s, %(id)s::uuid)
         order by r.ready_at {direction}, r.id {direction} limit %(most)s)
        union all
        (select ready_at(null, j.id), j.id from job as j
         where j.state = 3 and j.lane = v.lane and j.id {beyond} %(fresh_id)s::uuid
           and j.id >= least(l.fresh_watermark, v.uncounted)
           and (j.id > l.fresh_watermark or uuid_send(j.id) not in (select leased_ids()))
         order by j.id {direction} limit %(most)s)
    ) as both_kinds order by both_kinds.at {direction}, both_kinds.id {direction} limit %(most)s
) as k order by k.at {direction}, k.id {direction};

-- name: delayed
select k.due_at, k.id::text, k.lane
from unnest(%(queue)s::int8[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (queue, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.queue = v.queue and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: delayed_tenant
select k.due_at, k.id::text, k.lane
from unnest(%(tenant)s::text[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (tenant, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.tenant = v.tenant and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: delayed_task
select k.due_at, k.id::text, k.lane
from unnest(%(task)s::text[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (task, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.task = v.task and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: delayed_dependency
select k.due_at, k.id::text, k.lane
from unnest(%(dependency)s::text[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (dependency, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.dependency = v.dependency and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: delayed_code
select k.due_at, k.id::text, k.lane
from unnest(%(code)s::text[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (code, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.code = v.code and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: delayed_fingerprint
select k.due_at, k.id::text, k.lane
from unnest(%(fingerprint)s::text[], %(wait)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (fingerprint, wait, since, until)
cross join lateral (
    select d.due_at, d.id, d.lane from delayed as d
    where d.fingerprint = v.fingerprint and d.waiting_for = v.wait and (d.due_at, d.id) {beyond} (%(at)s, %(id)s::uuid)
      and d.due_at >= v.since and d.due_at < v.until
    order by d.due_at {direction}, d.id {direction} limit %(most)s
) as k order by k.due_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_queue
select k.ended_at, k.id::text, k.lane
from unnest(%(queue)s::int8[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (queue, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.queue = v.queue and e.state = v.state and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_all
select k.ended_at, k.id::text, k.lane
from unnest(%(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.state = v.state and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_tenant
select k.ended_at, k.id::text, k.lane
from unnest(%(tenant)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (tenant, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.tenant = v.tenant and e.state = v.state and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_task
select k.ended_at, k.id::text, k.lane
from unnest(%(task)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (task, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.task = v.task and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_dependency
select k.ended_at, k.id::text, k.lane
from unnest(%(dependency)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (dependency, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.dependency = v.dependency and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_death
select k.ended_at, k.id::text, k.lane
from unnest(%(death)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (death, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.death = v.death and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_code
select k.ended_at, k.id::text, k.lane
from unnest(%(code)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (code, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.code = v.code and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_fingerprint
select k.ended_at, k.id::text, k.lane
from unnest(%(fingerprint)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (fingerprint, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.fingerprint = v.fingerprint and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: ended_tenant_fingerprint
select k.ended_at, k.id::text, k.lane
from unnest(%(tenant)s::text[], %(fingerprint)s::text[], %(state)s::int8[], %(since)s::int8[], %(until)s::int8[]) as v (tenant, fingerprint, state, since, until)
cross join lateral (
    select e.ended_at, e.id, e.lane from ended as e
    where e.tenant = v.tenant and e.fingerprint = v.fingerprint and e.state = 1 and (e.ended_at, e.id) {beyond} (%(at)s, %(id)s::uuid)
      and e.ended_at >= v.since and e.ended_at < v.until
    order by e.ended_at {direction}, e.id {direction} limit %(most)s
) as k order by k.ended_at {direction}, k.id {direction} limit %(most)s;

-- name: end_of
-- The index has no order by id alone: only asked for a job whose record cannot be read.
select ended_at, death from ended where queue = %(queue)s and state = %(state)s and id = %(id)s::uuid;

-- name: finished
select seq, finished_at, jobs from finished where seq {beyond}= %(seq)s and kept > 0 order by seq {direction} limit 1;

-- name: finished_of_queue
select seq, finished_at, jobs from finished
where queue = %(queue)s and seq {beyond}= %(seq)s and kept > 0 order by seq {direction} limit 1;

-- name: finished_at
select seq, finished_at from finished where seq {beyond}= %(seq)s and kept > 0 order by seq {direction} limit 1;

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

-- name: all_queues
-- Also those that no claim has counted yet: the next queue is looked up in the index, however many jobs the last one has.
with recursive waiting (queue) as (
    (select queue from delayed order by queue limit 1)
    union all
    select (select d.queue from delayed as d where d.queue > w.queue order by d.queue limit 1) from waiting as w where w.queue is not null
)
select id from queue union select queue from waiting where queue is not null;

-- name: lanes
select id, ready > 0 from lane where id >= %(first)s and id < %(end)s order by id limit %(most)s;

-- name: lanes_by_queue
select id, ready > 0 from lane where queue = hash_id('queue', %(name)s) and id >= %(first)s and id < %(end)s order by id limit %(most)s;

-- name: lanes_by_tenant
select l.id, l.ready > 0 from queue as q join lane as l on l.tenant = hash_id('tenant', q.name, %(name)s)
where l.id >= %(first)s and l.id < %(end)s order by l.id limit %(most)s;

-- name: lanes_by_task
select id, ready > 0 from lane
where task_limiter = hash_id('limiter', 'task', %(name)s) and id >= %(first)s and id < %(end)s order by id limit %(most)s;

-- name: lanes_by_dependency
select id, ready > 0 from lane
where dependency_limiter = hash_id('limiter', 'dependency', %(name)s) and dependency_limiter <> 0 and id >= %(first)s and id < %(end)s
order by id limit %(most)s;

-- name: lanes_by_limiter
select id, has_ready from (
    (select id, ready > 0 as has_ready from lane
     where task_limiter = %(name)s::int8 and id >= %(first)s and id < %(end)s order by id limit %(most)s)
    union all
    (select id, ready > 0 from lane
     where dependency_limiter = %(name)s::int8 and dependency_limiter <> 0 and id >= %(first)s and id < %(end)s order by id limit %(most)s)
    union all
    (select id, ready > 0 from lane
     where group_limiter = %(name)s::int8 and group_limiter <> 0 and id >= %(first)s and id < %(end)s order by id limit %(most)s)
    union all
    (select id, ready > 0 from lane
     where pair_limiter = %(name)s::int8 and pair_limiter <> 0 and id >= %(first)s and id < %(end)s order by id limit %(most)s)
) as l order by id limit %(most)s;

-- name: uncounted_lanes
-- Of so many rows that no claim has counted: without any worker there may be a row for each enqueue.
select lane, min(lowest_id::text collate "C"), count(*)
from (select lane, lowest_id from uncounted_enqueue limit %(most)s) as u group by lane;

-- name: fresh_lanes
-- The next lane is looked up in the index, however many jobs the last one has.
with recursive fresh (lane) as (
    (select lane from job where state = 3 and lane >= %(first)s order by lane limit 1)
    union all
    select (select j.lane from job as j where j.state = 3 and j.lane > f.lane order by j.lane limit 1)
    from fresh as f where f.lane is not null
)
select lane from fresh where lane < %(end)s limit %(most)s;

-- name: kept_counts
select name, ready, scheduled, retrying, parked, dead, cancelled from name_count where subject = %(subject)s;

-- name: kept_counts_of
select name, ready, scheduled, retrying, parked, dead, cancelled from name_count
where subject = %(subject)s and name = %(name)s;

-- name: lane_counts
select id, ready, scheduled, retrying, parked, dead, cancelled from lane where id = any (%(lanes)s::int8[]);

-- name: uncounted_counts
select lane, count(*), sum(ready)::int8, sum(scheduled)::int8, sum(retrying)::int8, sum(parked)::int8
from (select * from uncounted_enqueue limit %(most)s) as u group by lane;

-- name: due
with recursive waiting (queue) as (
    (select queue from delayed order by queue limit 1)
    union all
    select (select d.queue from delayed as d where d.queue > w.queue order by d.queue limit 1) from waiting as w where w.queue is not null
)
select lane, waiting_for, count(*) from (
    select d.lane, d.waiting_for
    from (select id from queue union select queue from waiting where queue is not null) as q
    cross join (values (1), (2), (3), (4)) as waits (waiting_for)
    join delayed as d on d.queue = q.id and d.waiting_for = waits.waiting_for and d.due_at <= %(now)s
    limit %(most)s
) as due group by lane, waiting_for;

-- name: finished_counts
select q.name, sum(f.kept)::int8 from finished as f join queue as q on q.id = f.queue where f.kept > 0 group by q.name;


-- name: progress
select progress from annotation where id = %(id)s;

-- name: result
select value from result where id = %(id)s;
