-- name: enqueue
select {schema}.enqueue(
    %(ids)s::uuid[], %(places)s::int8[], %(dues)s::int8[], %(versions)s::int8[], %(waits)s::int8[], %(recs)s::bytea[],
    %(keys)s::bytea[], %(expiries)s::int8[],
    %(shelves)s::int8[], %(queues)s::text[], %(tenants)s::text[], %(tasks)s::text[], %(dependencies)s::text[],
    %(groups)s::text[], %(priorities)s::int8[], %(now)s::int8
);

-- name: enqueue_in
-- Somebody else's transaction alone knows when it is over, so its commit itself tells the workers.
select known, (select count(pg_notify(%(channel)s, ' ' || queue)) from unnest(%(queues)s::text[]) as queue)
from {schema}.enqueue(
    %(ids)s::uuid[], %(places)s::int8[], %(dues)s::int8[], %(versions)s::int8[], %(waits)s::int8[], %(recs)s::bytea[],
    %(keys)s::bytea[], %(expiries)s::int8[],
    %(shelves)s::int8[], %(queues)s::text[], %(tenants)s::text[], %(tasks)s::text[], %(dependencies)s::text[],
    %(groups)s::text[], %(priorities)s::int8[], %(now)s::int8
) as known;
