-- name: add
insert into cause (fate, kind, scope, name, count, first_at, last_at, sample)
select * from unnest(%(fates)s::int8[], %(kinds)s::text[], %(scopes)s::text[], %(names)s::text[], %(counts)s::int8[],
                     %(first_ats)s::int8[], %(last_ats)s::int8[], %(samples)s::text[])
on conflict (fate, kind, scope, name) do update set
    count = cause.count + excluded.count,
    first_at = case when cause.last_at < excluded.first_at - 86400000 then excluded.first_at else cause.first_at end,
    sample = case when excluded.last_at >= cause.last_at then excluded.sample else cause.sample end,
    last_at = greatest(cause.last_at, excluded.last_at);

-- name: add_hours
insert into cause_hour (fate, kind, scope, name, hour, count)
select * from unnest(%(fates)s::int8[], %(kinds)s::text[], %(scopes)s::text[], %(names)s::text[], %(hours)s::int8[],
                     %(counts)s::int8[])
on conflict (fate, kind, scope, name, hour) do update set count = cause_hour.count + excluded.count;

-- name: remove
-- The last of the dead jobs that are left is at the end of an index of theirs.
update cause set count = cause.count - v.count, last_at = coalesce(case cause.kind
    when 'f' then (select ended_at from ended where state = 1 and fingerprint = cause.name order by ended_at desc limit 1)
    when 'c' then (select ended_at from ended where state = 1 and code = cause.name order by ended_at desc limit 1)
    when 't' then (select ended_at from ended where state = 1 and tenant = cause.name order by ended_at desc limit 1)
    when 'k' then (select ended_at from ended where state = 1 and task = cause.name order by ended_at desc limit 1)
    when 'x' then (select ended_at from ended where state = 1 and death = cause.name order by ended_at desc limit 1)
    when 'p' then (select ended_at from ended
                   where state = 1 and tenant = cause.scope and fingerprint = cause.name order by ended_at desc limit 1)
    else (select ended_at from ended
          where state = 1 and tenant = cause.name and fingerprint = cause.scope order by ended_at desc limit 1)
end, 0)
from unnest(%(kinds)s::text[], %(scopes)s::text[], %(names)s::text[], %(counts)s::int8[]) as v (kind, scope, name, count)
where cause.fate = 0 and cause.kind = v.kind and cause.scope = v.scope and cause.name = v.name;

-- name: remove_living
update cause set count = cause.count - v.count
from unnest(%(kinds)s::text[], %(scopes)s::text[], %(names)s::text[], %(counts)s::int8[]) as v (kind, scope, name, count)
where cause.fate = 1 and cause.kind = v.kind and cause.scope = v.scope and cause.name = v.name;

-- name: remove_empty
delete from cause where count <= 0;

-- name: prune_hours
delete from cause_hour where ctid = any (array(
    (select ctid from cause_hour where fate = 0 and hour < %(dead_before)s limit %(max_rows)s)
    union all
    (select ctid from cause_hour where fate = 1 and hour < %(living_before)s limit %(max_rows)s)
)) returning fate, kind, scope, name, count;

-- name: by_count
select name, count, first_at, last_at, sample from cause
where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and (count, name) < (%(value)s, %(name)s) and last_at >= %(since)s
order by count desc, name desc limit %(limit)s;

-- name: by_last
select name, count, first_at, last_at, sample from cause
where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and (last_at, name) < (%(value)s, %(name)s) and last_at >= %(since)s
order by last_at desc, name desc limit %(limit)s;

-- name: named
select name, count, first_at, last_at, sample from cause
where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and last_at >= %(since)s
  and name = any (array(select json_array_elements_text(%(names)s::json)));

-- name: total
select count(*) from (
    select 1 from cause where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and last_at >= %(since)s limit %(most)s
) as counted;

-- name: hours
select name, hour, count from cause_hour
where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s
  and name = any (array(select json_array_elements_text(%(names)s::json))) and hour >= %(since)s;

-- name: hours_of_tenants
select scope, hour, count from cause_hour
where fate = %(fate)s and kind = 'p' and scope = any (array(select json_array_elements_text(%(names)s::json)))
  and name = %(scope)s and hour >= %(since)s;

-- name: ends
select v.name, first.ended_at, last.ended_at, last.id::text
from (select json_array_elements_text(%(names)s::json) as name, %(scope)s::text as scope) as v
cross join lateral (
    select ended_at from ended where state = 1 and {condition} order by ended_at, id limit 1
) as first
cross join lateral (
    select ended_at, id from ended where state = 1 and {condition} order by ended_at desc, id desc limit 1
) as last;
