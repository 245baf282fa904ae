-- name: enqueue
select {schema}.enqueue(
    %(ids)s::uuid[], %(places)s::int8[], %(dues)s::int8[], %(versions)s::int8[], %(waits)s::int8[], %(starts)s::int8[],
    %(recs)s::bytea, %(keyed)s::int8[], %(keys)s::bytea, %(expiries)s::int8[], %(shelves)s::json, %(now)s::int8
);

-- name: enqueue_in
-- Somebody else's transaction alone knows when it is over, so its commit itself tells the workers.
select known::text[], (
    select count(pg_notify(%(channel)s, ' ' || queue)) from (
        select distinct queue from json_to_recordset(%(shelves)s::json) as s (queue text)
    ) as queues
)
from {schema}.enqueue(
    %(ids)s::uuid[], %(places)s::int8[], %(dues)s::int8[], %(versions)s::int8[], %(waits)s::int8[], %(starts)s::int8[],
    %(recs)s::bytea, %(keyed)s::int8[], %(keys)s::bytea, %(expiries)s::int8[], %(shelves)s::json, %(now)s::int8
) as known;
