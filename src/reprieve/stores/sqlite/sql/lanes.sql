-- name: by_ids
select lane.id, queue.name, tenant.name, lane.task, lane.dependency, lane."group", lane.priority,
       lane.queue, lane.tenant, lane.task_limiter, lane.dependency_limiter, lane.group_limiter
from reprieve_lane as lane
join reprieve_queue as queue on queue.id = lane.queue
join reprieve_tenant as tenant on tenant.id = lane.tenant
where lane.id in ({placeholders});

-- name: by_names
select lane.id, queue.name, tenant.name, lane.task, lane.dependency, lane."group", lane.priority,
       lane.queue, lane.tenant, lane.task_limiter, lane.dependency_limiter, lane.group_limiter
from reprieve_queue as queue
join reprieve_tenant as tenant on tenant.queue = queue.id and tenant.name = ?
join reprieve_lane as lane on lane.tenant = tenant.id
    and lane.task = ? and lane.dependency = ? and lane."group" = ? and lane.priority = ?
where queue.name = ?;

-- name: create_lane
insert into reprieve_lane
    (queue, tenant, task, dependency, "group", priority, task_limiter, dependency_limiter, group_limiter, pair_limiter)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: count_lane_of_tenant
update reprieve_tenant set lanes = lanes + 1 where id = ?;

-- name: count_lane_of_limiters
update reprieve_limiter set lanes = lanes + 1 where id in (?, ?, ?, ?);

-- name: count_tenant
update reprieve_queue set tenants = tenants + 1 where id = ?;

-- name: lanes_deleted
select value from reprieve_counter where name = 'lanes_deleted';

-- name: queue
select id from reprieve_queue where name = ?;

-- name: create_queue
insert into reprieve_queue (name, limiter, pauses)
values (?, ?, coalesce((select pauses from reprieve_limit_default where subject = 'queue'), 0));

-- name: tenant
select id from reprieve_tenant where queue = ? and name = ?;

-- name: create_tenant
with new (queue, name) as (values (?, ?))
insert into reprieve_tenant (queue, name, permits, max_running, rate_count, rate_window)
select new.queue, new.name, d.permits, d.max_running, d.rate_count, d.rate_window
from new join reprieve_queue as queue on queue.id = new.queue left join reprieve_limit_default as d
    on d.subject = 'tenant' and d.scope = (
        select max(scope) from reprieve_limit_default where subject = 'tenant' and scope in ('', queue.name));

-- name: limiter
select id from reprieve_limiter where subject = ? and name = ? and dependency = ?;

-- name: create_limiter
with new (subject, name, dependency) as (values (?, ?, ?))
insert into reprieve_limiter (subject, name, dependency, permits, max_running, rate_count, rate_window)
select new.subject, new.name, new.dependency, d.permits, d.max_running, d.rate_count, d.rate_window
from new left join reprieve_limit_default as d
    on d.subject = new.subject and d.scope = (
        select max(scope) from reprieve_limit_default where subject = new.subject and scope in ('', new.dependency));

-- name: has_pair_default
select 1 from reprieve_limit_default where subject = 'tenant_dependency' and scope in ('', ?);
