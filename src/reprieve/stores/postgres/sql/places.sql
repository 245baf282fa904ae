-- name: take_turn
select take_turn(%(since)s::text::pg_snapshot)::text;

-- name: begin_claim
select begin_claim(%(since)s::text::pg_snapshot, %(queues)s::int8[], %(now)s, %(most)s)::text;

-- name: by_number
select id, queue_name, tenant_name, task, dependency, "group", priority from lane where id = any (%(lanes)s::int8[]);

-- name: unmade
-- Who only looks may meet jobs whose lane is not made yet.
select distinct lane, queue, tenant, task, dependency, "group", priority from ledger where lane = any (%(lanes)s::int8[]);

-- name: make
select make_lanes(array(
    select row(null, v.lane, v.queue, v.tenant, v.task, v.dependency, v."group", v.priority, 0, 0, 0, 0, null, null, null)::ledger
    from json_to_recordset(%(lanes)s::json) as v (
        lane int8, queue text, tenant text, task text, dependency text, "group" text, priority int8)
));
