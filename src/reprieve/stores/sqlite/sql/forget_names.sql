-- name: progress
select (select value from reprieve_counter where name = 'names_checked_at'),
       (select value from reprieve_counter where name = 'names_reached');

-- name: note_progress
insert into reprieve_counter (name, value) values ('names_checked_at', :checked_at), ('names_reached', :reached)
on conflict (name) do update set value = excluded.value;

-- name: next_lanes
-- Lanes without jobs that wait or have ended. One of whose tenant and limiters none is idle may have jobs that run.
select lane.id, lane.tenant, lane.task_limiter, lane.dependency_limiter, lane.group_limiter, lane.pair_limiter,
       lane.ready = 0 and lane.scheduled = 0 and lane.retrying = 0 and lane.parked = 0 and lane.dead = 0 and lane.cancelled = 0,
       (select running from reprieve_tenant where id = lane.tenant) > 0
       and not exists (
           select 1 from reprieve_limiter
           where id in (lane.task_limiter, lane.dependency_limiter, lane.group_limiter, lane.pair_limiter) and running = 0
       )
from reprieve_lane as lane where lane.id > :reached order by lane.id limit :max_rows;

-- name: leases
select jobs from reprieve_lease;

-- name: delete_lanes
delete from reprieve_lane where id in (select value from json_each(?));

-- name: note_deleted
update reprieve_counter set value = value + 1 where name = 'lanes_deleted';

-- name: uncount_of_tenants
-- What a rate has granted counts for 65 buckets, each 1/64 of the window, rounded up to milliseconds (core/rate.py); below too.
update reprieve_tenant as tenant
set lanes = lanes - v.column2,
    kept_until = case meter when '[]' then 0 else v.column3 + cast(coalesce(rate_window, 0) * 1000 * 65 / 64 as integer) + 70 end
from (values {values}) as v where tenant.id = v.column1;

-- name: uncount_of_limiters
update reprieve_limiter as limiter
set lanes = lanes - v.column2,
    kept_until = case meter when '[]' then 0 else v.column3 + cast(coalesce(rate_window, 0) * 1000 * 65 / 64 as integer) + 70 end
from (values {values}) as v where limiter.id = v.column1;

-- name: delete_tenants
delete from reprieve_tenant where id in (
    select tenant.id from reprieve_tenant as tenant
    where lanes = 0 and own = 0 and weight = 1 and kept_until <= :now and running = 0
      and (coalesce(served_at, 0) <= :idle_since
           or finish <= (select clock from reprieve_queue as queue where queue.id = tenant.queue))
    limit :max_rows
) returning queue;

-- name: uncount_tenants
update reprieve_queue as queue set tenants = tenants - v.column2 from (values {values}) as v where queue.id = v.column1;

-- name: delete_limiters
delete from reprieve_limiter where id in (
    select id from reprieve_limiter
    where lanes = 0 and own = 0 and subject <> 'queue' and kept_until <= :now and running = 0
    limit :max_rows
);

-- name: delete_queues
delete from reprieve_queue where id in (
    select queue.id from reprieve_queue as queue join reprieve_limiter as limiter on limiter.id = queue.limiter
    where queue.tenants = 0 and queue.last_served_at <= :idle_since and limiter.own = 0
      and case limiter.meter when '[]' then 0 else queue.last_served_at + cast(coalesce(limiter.rate_window, 0) * 1000 * 65 / 64 as integer) + 70 end <= :now
      and not exists (select 1 from reprieve_finished as finished where finished.queue = queue.id)
    limit :max_rows
) returning limiter;

-- name: delete_queue_limiters
delete from reprieve_limiter where id in (select value from json_each(?));
