-- name: session
select id, number, results, is_dead = 0,
       (select json_group_array(json_array(queues, slots, prefetch)) from (
           select queues, sum(slots) as slots, sum(prefetch) as prefetch
           from reprieve_session as session where is_dead = 0 group by queues
       ))
from reprieve_session as session where name = :session;

-- name: queue
select limiter.id, limiter.permits, limiter.max_running, limiter.rate_count, limiter.rate_window, limiter.meter, limiter.running,
       queue.id, queue.clock, queue.last_tenant, queue.in_a_row, queue.last_served_at, queue.other_served_at, queue.pauses
from reprieve_queue as queue join reprieve_limiter as limiter on limiter.id = queue.limiter where queue.name = ?;

-- name: due
select json_group_array(json_array(wait, due, id, lane)) from (
    select * from (select * from reprieve_delayed as delayed where queue = :queue and wait = 1 and due <= :schedule order by due limit :limit)
    union all
    select * from (select * from reprieve_delayed as delayed where queue = :queue and wait = 2 and due <= :retry order by due limit :limit)
    union all
    select * from (select * from reprieve_delayed as delayed where queue = :queue and wait = 3 and due <= :now order by due limit :limit)
    union all
    select * from (select * from reprieve_delayed as delayed where queue = :queue and wait = 4 and due <= :now order by due limit :limit)
);

-- name: next_due
select min(due) from (
    select min(due) as due from reprieve_delayed as delayed where queue = :queue and wait = 1 and :schedule > 0
    union all
    select min(due) from reprieve_delayed as delayed where queue = :queue and wait = 2 and :retry > 0
    union all
    select min(due) from reprieve_delayed as delayed where queue = :queue and wait = 3
    union all
    select min(due) from reprieve_delayed as delayed where queue = :queue and wait = 4
);

-- name: undelay
-- The casts give the values an affinity; without one SQLite would not use the key, but read the whole table.
delete from reprieve_delayed as delayed where (queue, wait, due, id) in (
    select cast(column1 as integer), cast(column2 as integer), cast(column3 as integer), cast(column4 as integer)
    from (values {values}));

-- name: promote
update reprieve_lane as lane
set ready = ready + v.column2 + v.column3 + v.column4, scheduled = scheduled - v.column2,
    retrying = retrying - v.column3, parked = parked - v.column4
from (values {values}) as v where lane.id = v.column1;

-- name: reopening_limiters
select id, permits, max_running, rate_count, rate_window, meter, running, last_returned_tenant
from reprieve_limiter as limiter where reopens_at <= ? limit 16;

-- name: tenants_of_blocked_lanes
-- `blocked_by > 0` says nothing new, but without it SQLite does not use the index of blocked lanes.
select distinct tenant from reprieve_lane as lane
where blocked_by = ? and blocked_by > 0 and tenant > ? order by tenant limit ?;

-- name: return_lanes
update reprieve_lane as lane set blocked_by = 0, is_open = ready > 0
where blocked_by = ? and blocked_by > 0 and tenant in (select value from json_each(?));

-- name: limiter_returned
update reprieve_limiter as limiter
set last_returned_tenant = :last_returned_tenant, reopens_at = :reopens_at,
    blocked_lanes = exists (select 1 from reprieve_lane as lane where blocked_by = :limiter and blocked_by > 0)
where id = :limiter;

-- name: return_tenants
update reprieve_tenant as tenant
set blocked = 0, is_candidate = 1, reopens_at = null,
    finish = max(finish, (select clock from reprieve_queue as queue where id = tenant.queue))
where reopens_at <= ?;

-- name: next_reopening
select min(reopens_at) from (
    select min(reopens_at) as reopens_at from reprieve_limiter as limiter where reopens_at is not null
    union all
    select min(reopens_at) from reprieve_tenant as tenant where reopens_at is not null
);

-- name: candidates
-- One lane more than the claim considers, so that it knows whether there are others.
select json_group_array(json_array(
    candidate.id, permits, max_running, rate_count, rate_window, meter, running, name, weight, load, finish, served,
    (select json_group_array(json_array(
            open.id, open.priority, open.served, open.ready,
            json_array(open.task_limiter, open.dependency_limiter, open.group_limiter, open.pair_limiter)))
     from (select * from reprieve_lane as lane where lane.tenant = candidate.id and is_open = 1
           order by priority, served limit :lanes) as open)
))
from {tenants} as candidate;

-- name: in_order
(
    select * from reprieve_tenant
    where queue = :queue and is_candidate = 1 and (load, finish, name) > (:load, :finish, :name)
    order by load, finish, name limit :limit
)

-- name: released
(
    select * from reprieve_tenant
    where id in (select value from json_each(:tenants)) and is_candidate = 1
      and (:is_cut = 0 or (load, finish, name) < (:load, :finish, :name))
)

-- name: count_candidates
select count(*) from reprieve_tenant as tenant
where queue = :queue and is_candidate = 1 and (load, finish, name) > (:load, :finish, :name);

-- name: candidate_at
select load, finish, name from reprieve_tenant as tenant
where queue = :queue and is_candidate = 1 and (load, finish, name) > (:load, :finish, :name)
order by load, finish, name limit 1 offset :index;

-- name: task_limiters
select id from reprieve_limiter as limiter where subject = 'task' and name in (select value from json_each(?));

-- name: count_open_lanes
select count(*) from reprieve_lane as lane where tenant = ? and is_open = 1;

-- name: lanes_among
-- Of some of a tenant's open lanes, those whose task is not excluded.
select json_group_array(json_array(
    id, priority, served, ready, json_array(task_limiter, dependency_limiter, group_limiter, pair_limiter)))
from (
    select * from (
        select * from reprieve_lane as lane where tenant = :tenant and is_open = 1
        order by priority, served limit :size offset :skip
    ) where task_limiter not in (select value from json_each(:excluded)) limit :lanes
);

-- name: oldest_lanes
-- The other columns of a group are those of the row with its minimum.
select json_group_array(json_array(
    id, priority, served, ready, json_array(task_limiter, dependency_limiter, group_limiter, pair_limiter)))
from (select *, min(served) from reprieve_lane as lane where tenant = ? and is_open = 1 group by priority order by priority);

-- name: weights
-- In whole thousandths. A tenant that waits has an open lane: some candidates turn out to have none.
select coalesce(sum(case when is_waiting then weight end), 0),
       coalesce(sum(case when not is_waiting and running > 0 then weight end), 0)
       + (select coalesce(sum(cast(weight * 1000 + 0.5 as integer)), 0) from reprieve_tenant
          where queue = :queue and running > 0 and is_candidate = 0)
from (
    select cast(candidate.weight * 1000 + 0.5 as integer) as weight, candidate.running, exists (
        select 1 from reprieve_lane as lane where lane.tenant = candidate.id and lane.is_open = 1
    ) as is_waiting
    from (select id, weight, running from reprieve_tenant where queue = :queue and is_candidate = 1 limit :limit) as candidate
);

-- name: limiters
select json_group_array(json_array(id, permits, max_running, rate_count, rate_window, meter, running))
from reprieve_limiter as limiter where id in (select value from json_each(?));

-- name: first_jobs
select json_group_array(json_array(id, state, version, wait, due, lane, length(record), at)), cast(group_concat(record, '') as blob)
from (
    select r.lane, r.at, job.id, job.state, job.version, job.wait, job.due, job.record
    from json_each(?) as wanted
    cross join reprieve_ready as r on r.lane = wanted.value
        and (r.at, r.id) in (select at, id from reprieve_ready as ready where lane = wanted.value order by at, id limit ?)
    cross join reprieve_job as job on job.id = r.id
);

-- name: take_off
delete from reprieve_ready as ready where (lane, at, id) in (
    select cast(column1 as integer), cast(column2 as integer), cast(column3 as integer) from (values {values}));

-- name: count_taken
update reprieve_lane as lane set ready = ready - v.column2 from (values {values}) as v where lane.id = v.column1;

-- name: lanes
update reprieve_lane as lane set is_open = v.column2, blocked_by = v.column3, served = v.column4
from (values {values}) as v where lane.id = v.column1;

-- name: tenants
update reprieve_tenant as tenant
set running = v.column2, load = v.column3, finish = v.column4, is_candidate = v.column5, blocked = v.column6,
    reopens_at = v.column7, served = v.column8, served_at = coalesce(v.column9, served_at), meter = coalesce(v.column10, meter)
from (values {values}) as v where tenant.id = v.column1;

-- name: limiters_taken
update reprieve_limiter as limiter
set running = v.column2, blocked_lanes = blocked_lanes + v.column3,
    reopens_at = case when v.column3 > 0 then v.column4 else reopens_at end, meter = coalesce(v.column5, meter)
from (values {values}) as v where limiter.id = v.column1;

-- name: queue_state
update reprieve_queue as queue
set clock = ?, last_tenant = ?, in_a_row = ?, last_served_at = ?, other_served_at = ? where id = ?;

-- name: lease
insert into reprieve_lease (id, at, jobs) values (?, ?, ?);

-- name: called
update reprieve_session as session set number = ?, results = ? where id = ?;
