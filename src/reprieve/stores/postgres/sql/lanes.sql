-- name: acquire_claim_lock
-- The commit does not wait for the disk, so that the claim lock is free again at once; `flush` does, after it.
select acquire_claim_lock(%(counted)s::text::pg_snapshot)::text, set_config('synchronous_commit', 'off', true);

-- name: begin_claim
select begin_claim(%(counted)s::text::pg_snapshot, %(queues)s::int8[], %(now)s, %(max_promoted)s)::text,
       set_config('synchronous_commit', 'off', true);

-- name: flush
-- A transaction that waits for the disk, and for replicas if commits do, until all that was committed before it has arrived there.
-- Without anything to wait for it writes nothing.
select pg_logical_emit_message(true, 'reprieve', '') where pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn();

-- name: counted
select id, queue_name, tenant_name, task, dependency, "group", priority from lane where id = any (%(lanes)s::int8[]);

-- name: uncounted
-- A reader without the claim lock may find jobs whose lane no claim has created yet.
select distinct lane, queue, tenant, task, dependency, "group", priority
from uncounted_enqueue where lane = any (%(lanes)s::int8[]);

-- name: create
select create_lanes(array(
    select row(v.lane, v.queue, v.tenant, v.task, v.dependency, v."group", v.priority, 0, 0, 0, 0, null, null, null, null, null)::lane_addition
    from json_to_recordset(%(lanes)s::json) as v (
        lane int8, queue text, tenant text, task text, dependency text, "group" text, priority int8)
));
