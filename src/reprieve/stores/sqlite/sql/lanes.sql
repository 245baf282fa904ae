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

-- name: queue
select id from reprieve_queue where name = ?;

-- name: create_queue
insert into reprieve_queue (name, limiter) values (?, ?);

-- name: tenant
select id from reprieve_tenant where queue = ? and name = ?;

-- name: create_tenant
insert into reprieve_tenant (queue, name) values (?, ?);

-- name: limiter
select id from reprieve_limiter where subject = ? and name = ? and dependency = ?;

-- name: create_limiter
insert into reprieve_limiter (subject, name, dependency) values (?, ?, ?);
