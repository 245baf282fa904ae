-- name: enqueue
select {schema}.enqueue(
    %(ids)s::uuid[], %(places)s::int8[], %(dues)s::int8[], %(versions)s::int8[], %(waits)s::int8[], %(starts)s::int8[],
    %(recs)s::bytea, %(keyed)s::int8[], %(keys)s::bytea, %(expiries)s::int8[], %(lanes)s::json, %(now)s::int8
);

-- name: enqueue_in
-- Somebody else's transaction alone knows when it is over, so its commit itself tells the workers. Whatever the driver, its
-- parameters are texts, bytes and one number. Without a channel nobody is told.
select array_to_json(known)::text, (
    select count(pg_notify(cast(%(channel)s as text), ' ' || queue)) from (
        select distinct queue from json_to_recordset(cast(%(lanes)s as text)::json) as s (queue text)
        where cast(%(channel)s as text) <> ''
    ) as queues
)
from {schema}.enqueue(
    cast(%(ids)s as text)::uuid[], cast(%(places)s as text)::int8[], cast(%(dues)s as text)::int8[],
    cast(%(versions)s as text)::int8[], cast(%(waits)s as text)::int8[], cast(%(starts)s as text)::int8[],
    cast(%(recs)s as bytea), cast(%(keyed)s as text)::int8[], cast(%(keys)s as bytea), cast(%(expiries)s as text)::int8[],
    cast(%(lanes)s as text)::json, cast(%(now)s as int8)
) as known;
