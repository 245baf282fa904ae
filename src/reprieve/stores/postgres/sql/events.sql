-- Events are written under the claim lock, which is released after the commit: so they are committed in the order of their
-- positions, and what is committed later is after the newest that a reader sees.

-- name: oldest
select seq, data from event where seq > %(after)s and seq < %(before)s order by seq limit %(limit)s;

-- name: newest
select seq, data from event where seq > %(after)s and seq < %(before)s order by seq desc limit %(limit)s;

-- name: oldest_of_job
select seq, data from event where job = %(job)s::uuid and seq > %(after)s and seq < %(before)s order by seq limit %(limit)s;

-- name: newest_of_job
select seq, data from event where job = %(job)s::uuid and seq > %(after)s and seq < %(before)s
order by seq desc limit %(limit)s;

-- name: ends
-- The newest position that was committed, not the last value of the sequence: a transaction under way may have that.
select greatest((select seq from event order by seq desc limit 1), position, 0), coalesce(position, 0)
from (select (select position from event_pruned) as position) as pruned;

-- name: prune
with gone as (
    delete from event where seq = any (array(select seq from event where at < %(before)s order by at limit %(max_rows)s))
    returning seq
), noted as (
    insert into event_pruned as p (id, position) select 1, max(seq) from gone having count(*) > 0
    on conflict (id) do update set position = greatest(p.position, excluded.position)
)
select count(*) from gone;

-- name: drop_day
select drop_event_day(%(before)s);

-- name: create_days
select create_event_days(%(now)s, 3);

-- name: tell
insert into event (at, version, data) select v.at, 0, v.data from unnest(%(ats)s::int8[], %(data)s::bytea[]) as v (at, data);
