-- name: session
select id, number, answers, is_dead = 0,
       (select coalesce(sum(slots), 0) from reprieve_session as session where is_dead = 0)
from reprieve_session as session where name = :session;

-- name: queue
select queue.id, queue.clock, queue.last, queue.streak, queue.last_at, queue.other_at, queue.pauses,
       limiter.id, limiter.permits, limiter.max_running, limiter.rate_count, limiter.rate_window, limiter.meter, limiter.running
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

-- name: limiters_back
select id, permits, max_running, rate_count, rate_window, meter, running, aside, cursor
from reprieve_limiter as limiter where back_at <= ? limit 16;

-- name: returning
-- `aside > 0` says nothing new, but without it SQLite does not see that the index of what is set aside will do.
select distinct tenant from reprieve_lane as lane where aside = ? and aside > 0 and tenant > ? order by tenant limit ?;

-- name: return_lanes
update reprieve_lane as lane set aside = 0, is_open = ready > 0 where aside = ? and aside > 0 and tenant in (select value from json_each(?));

-- name: limiter_returned
update reprieve_limiter as limiter
set cursor = :cursor, back_at = :back_at, aside = (select count(*) from (select 1 from reprieve_lane as lane where aside = :limiter and aside > 0 limit 1))
where id = :limiter;

-- name: tenants_back
update reprieve_tenant as tenant
set blocked = 0, ringed = 1, back_at = null, finish = max(finish, (select clock from reprieve_queue as queue where id = tenant.queue))
where back_at <= ?;

-- name: next_back
select min(back_at) from (select min(back_at) as back_at from reprieve_limiter as limiter where back_at is not null
    union all select min(back_at) from reprieve_tenant as tenant where back_at is not null);

-- name: candidates
select json_group_array(json_array(
    t.id, t.permits, t.max_running, t.rate_count, t.rate_window, t.meter, t.running, t.weight, t.finish, t.served,
    (select json_group_array(json_array(
            s.id, s.priority, s.served, s.ready, s.task_limiter, s.dependency_limiter, s.group_limiter))
     from (select * from reprieve_lane as lane where tenant = t.id and is_open = 1 order by priority, served limit 65) as s)
))
from {tenants} as t;

-- name: in_turn
(
    select * from reprieve_tenant where queue = :queue and ringed = 1 and (load, finish, id) > (:load, :finish, :id)
    order by load, finish, id limit :limit
)

-- name: by_id
(select * from reprieve_tenant where id in (select value from json_each(:tenants)))

-- name: released
select id from reprieve_tenant as tenant
where id in (select value from json_each(:tenants)) and ringed = 1
  and (:is_cut = 0 or (load, finish) < (:load, :finish));

-- name: oldest_lane
select id, priority, served, ready, task_limiter, dependency_limiter, group_limiter
from reprieve_lane as lane where tenant = ? and is_open = 1 order by served, priority desc limit 1;

-- name: weights
-- Who waits has an open lane: the ring also holds tenants that are found to be empty only when it is their turn. Of
-- those in the ring a thousand are enough to tell how small a share is.
select coalesce(sum(case when is_waiting then weight end), 0.0),
       coalesce(sum(case when not is_waiting and running > 0 then weight end), 0.0)
       + (select total(weight) from reprieve_tenant where queue = :queue and running > 0 and ringed = 0)
from (
    select ring.weight, ring.running, exists (
        select 1 from reprieve_lane as lane where lane.tenant = ring.id and lane.is_open = 1
    ) as is_waiting
    from (select id, weight, running from reprieve_tenant where queue = :queue and ringed = 1 limit 1000) as ring
);

-- name: limiters
select json_group_array(json_array(id, permits, max_running, rate_count, rate_window, meter, running))
from reprieve_limiter as limiter where id in (select value from json_each(?));

-- name: take
select json_group_array(json_array(id, state, version, wait, due, lane, length(record))), cast(group_concat(record, '') as blob)
from (
    select r.lane, job.id, job.state, job.version, job.wait, job.due, job.record
    from json_each(?) as wanted
    cross join reprieve_ready as r on r.lane = wanted.value
        and r.id in (select id from reprieve_ready as ready where lane = wanted.value order by id limit ?)
    cross join reprieve_job as job on job.id = r.id
);

-- name: unready
delete from reprieve_ready as ready where (lane, id) in (
    select cast(column1 as integer), cast(column2 as integer) from (values {values}));

-- name: count
update reprieve_lane as lane set ready = ready - v.column2 from (values {values}) as v where lane.id = v.column1;

-- name: lanes
update reprieve_lane as lane set is_open = v.column2, aside = v.column3, served = v.column4
from (values {values}) as v where lane.id = v.column1;

-- name: tenants
update reprieve_tenant as tenant
set running = v.column2, load = v.column3, finish = v.column4, ringed = v.column5, blocked = v.column6,
    back_at = v.column7, served = v.column8, served_at = coalesce(v.column9, served_at), meter = v.column10
from (values {values}) as v where tenant.id = v.column1;

-- name: limiters_taken
update reprieve_limiter as limiter
set running = v.column2, meter = v.column3, aside = aside + v.column4,
    back_at = case when v.column4 > 0 then v.column5 else back_at end
from (values {values}) as v where limiter.id = v.column1;

-- name: turn
update reprieve_queue as queue set clock = ?, last = ?, streak = ?, last_at = ?, other_at = ? where id = ?;

-- name: lease
insert into reprieve_lease (id, at, jobs) values (?, ?, ?);

-- name: called
update reprieve_session as session set number = ?, answers = ? where id = ?;
