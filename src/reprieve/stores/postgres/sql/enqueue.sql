-- name: enqueue
select {schema}.enqueue(
    ids => %(ids)s::uuid[], lanes => %(lanes)s::int8[], due_ats => %(due_ats)s::int8[],
    sla_ats => %(sla_ats)s::int8[], versions => %(versions)s::int8[],
    waiting_for => %(waiting_for)s::int8[], starts => %(starts)s::int8[], records => %(records)s::bytea,
    keyed => %(keyed)s::int8[], keys => %(keys)s::bytea, key_expires_ats => %(key_expires_ats)s::int8[],
    lane_names => %(lane_names)s::json, now => %(now)s::int8,
    expiring_ats => %(expiring_ats)s::int8[], expiring_ids => %(expiring_ids)s::uuid[], new_events => %(events)s::json
);

-- name: enqueue_in
-- Part of a caller's transaction: its commit notifies the workers, since no other process knows when it comes. The parameters
-- are texts, bytes and one number, which every driver can send. An empty channel notifies no worker.
select array_to_json(known_ids)::text, (
    select count(pg_notify(cast(%(channel)s as text), ' ' || queue)) from (
        select distinct queue from json_to_recordset(cast(%(lane_names)s as text)::json) as l (queue text)
        where cast(%(channel)s as text) <> ''
    ) as queues
)
from {schema}.enqueue(
    ids => cast(%(ids)s as text)::uuid[], lanes => cast(%(lanes)s as text)::int8[],
    due_ats => cast(%(due_ats)s as text)::int8[], sla_ats => cast(%(sla_ats)s as text)::int8[],
    versions => cast(%(versions)s as text)::int8[],
    waiting_for => cast(%(waiting_for)s as text)::int8[], starts => cast(%(starts)s as text)::int8[],
    records => cast(%(records)s as bytea), keyed => cast(%(keyed)s as text)::int8[], keys => cast(%(keys)s as bytea),
    key_expires_ats => cast(%(key_expires_ats)s as text)::int8[], lane_names => cast(%(lane_names)s as text)::json,
    now => cast(%(now)s as int8), expiring_ats => cast(%(expiring_ats)s as text)::int8[],
    expiring_ids => cast(%(expiring_ids)s as text)::uuid[], new_events => cast(%(events)s as text)::json
) as known_ids;
