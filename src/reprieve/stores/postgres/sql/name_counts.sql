-- name: add
insert into name_count (subject, name, ready, scheduled, retrying, parked, dead, cancelled)
select * from unnest(%(subjects)s::text[], %(names)s::text[], %(ready)s::int8[], %(scheduled)s::int8[], %(retrying)s::int8[],
                     %(parked)s::int8[], %(dead)s::int8[], %(cancelled)s::int8[])
on conflict (subject, name) do update
set ready = name_count.ready + excluded.ready, scheduled = name_count.scheduled + excluded.scheduled,
    retrying = name_count.retrying + excluded.retrying, parked = name_count.parked + excluded.parked,
    dead = name_count.dead + excluded.dead, cancelled = name_count.cancelled + excluded.cancelled;
