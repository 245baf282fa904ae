-- name: by_ids
select shelf.id, queue.name, tenant.name, shelf.task, shelf.dependency, shelf."group", shelf.priority,
       shelf.queue, shelf.tenant, shelf.task_gate, shelf.dependency_gate, shelf.group_gate
from reprieve_shelf as shelf
join reprieve_queue as queue on queue.id = shelf.queue
join reprieve_tenant as tenant on tenant.id = shelf.tenant
where shelf.id in ({marks});

-- name: by_names
select shelf.id, queue.name, tenant.name, shelf.task, shelf.dependency, shelf."group", shelf.priority,
       shelf.queue, shelf.tenant, shelf.task_gate, shelf.dependency_gate, shelf.group_gate
from reprieve_queue as queue
join reprieve_tenant as tenant on tenant.queue = queue.id and tenant.name = ?
join reprieve_shelf as shelf on shelf.tenant = tenant.id
    and shelf.task = ? and shelf.dependency = ? and shelf."group" = ? and shelf.priority = ?
where queue.name = ?;

-- name: make_shelf
insert into reprieve_shelf
    (queue, tenant, task, dependency, "group", priority, task_gate, dependency_gate, group_gate)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: queue
select id from reprieve_queue where name = ?;

-- name: make_queue
insert into reprieve_queue (name, gate) values (?, ?);

-- name: tenant
select id from reprieve_tenant where queue = ? and name = ?;

-- name: make_tenant
insert into reprieve_tenant (queue, name) values (?, ?);

-- name: gate
select id from reprieve_gate where subject = ? and name = ?;

-- name: make_gate
insert into reprieve_gate (subject, name) values (?, ?);
