-- name: take_turn
select take_turn(%(since)s::text::pg_snapshot)::text;

-- name: begin_claim
select begin_claim(%(since)s::text::pg_snapshot, %(queues)s::int8[], %(now)s, %(most)s)::text;

-- name: by_number
select id, queue_name, tenant_name, task, dependency, "group", priority from shelf where id = any (%(shelves)s::int8[]);

-- name: unmade
-- Who only looks may meet jobs whose shelf is not made yet.
select distinct shelf, queue, tenant, task, dependency, "group", priority from ledger where shelf = any (%(shelves)s::int8[]);

-- name: make
select make_shelves(array(
    select row(null, v.shelf, v.queue, v.tenant, v.task, v.dependency, v."group", v.priority, 0, 0, 0, 0, null, null, null)::ledger
    from json_to_recordset(%(shelves)s::json) as v (
        shelf int8, queue text, tenant text, task text, dependency text, "group" text, priority int8)
));
