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
-- The last of the dead jobs that are left is at the end of an index of theirs. Why columns are not compared with `=` is told in
-- stores/sql/causes.py.
update cause set count = cause.count - v.count, last_at = coalesce(case cause.kind
    when 'f' then (select ended_at from ended where state = 1 and fingerprint >= cause.name and fingerprint <= cause.name
                   order by fingerprint desc, ended_at desc limit 1)
    when 'c' then (select ended_at from ended where state = 1 and code >= cause.name and code <= cause.name
                   order by code desc, ended_at desc limit 1)
    when 't' then (select ended_at from ended where state = 1 and tenant >= cause.name and tenant <= cause.name
                   order by tenant desc, ended_at desc limit 1)
    when 'k' then (select ended_at from ended where state = 1 and task >= cause.name and task <= cause.name
                   order by task desc, ended_at desc limit 1)
    when 'x' then (select ended_at from ended where state = 1 and death >= cause.name and death <= cause.name
                   order by death desc, ended_at desc limit 1)
    when 'p' then (select ended_at from ended
                   where state = 1 and (tenant, fingerprint) >= (cause.scope, cause.name)
                     and (tenant, fingerprint) <= (cause.scope, cause.name)
                   order by tenant desc, fingerprint desc, ended_at desc limit 1)
    else (select ended_at from ended
          where state = 1 and (tenant, fingerprint) >= (cause.name, cause.scope)
            and (tenant, fingerprint) <= (cause.name, cause.scope)
          order by tenant desc, fingerprint desc, ended_at desc limit 1)
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
-- All columns of the index are compared and ordered, so that no other index seems as good to a server without statistics.
select name, count, first_at, last_at, sample from cause
where (fate, kind, scope, count, name) < (%(fate)s, %(kind)s, %(scope)s, %(value)s, %(name)s)
  and (fate, kind, scope) >= (%(fate)s, %(kind)s, %(scope)s) and last_at >= %(since)s
order by fate desc, kind desc, scope desc, count desc, name desc limit %(limit)s;

-- name: by_last
select name, count, first_at, last_at, sample from cause
where (fate, kind, scope, last_at, name) < (%(fate)s, %(kind)s, %(scope)s, %(value)s, %(name)s)
  and (fate, kind, scope) >= (%(fate)s, %(kind)s, %(scope)s) and last_at >= %(since)s
order by fate desc, kind desc, scope desc, last_at desc, name desc limit %(limit)s;

-- name: named
-- `offset 0` has each name looked up by itself.
select c.name, c.count, c.first_at, c.last_at, c.sample from json_array_elements_text(%(names)s::json) as v (name)
cross join lateral (
    select * from cause where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and name = v.name offset 0
) as c where c.last_at >= %(since)s;

-- name: total
select count(*) from (
    select 1 from cause where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and last_at >= %(since)s limit %(most)s
) as counted;

-- name: hours
select v.name, h.hour, h.count from json_array_elements_text(%(names)s::json) as v (name)
cross join lateral (
    select hour, count from cause_hour
    where fate = %(fate)s and kind = %(kind)s and scope = %(scope)s and name = v.name and hour >= %(since)s offset 0
) as h;

-- name: hours_of_tenants
select v.name, h.hour, h.count from json_array_elements_text(%(names)s::json) as v (name)
cross join lateral (
    select hour, count from cause_hour
    where fate = %(fate)s and kind = 'p' and scope = v.name and name = %(scope)s and hour >= %(since)s offset 0
) as h;

-- name: ends
select v.name, first.ended_at, last.ended_at, last.id::text
from (select json_array_elements_text(%(names)s::json) as name, %(scope)s::text as scope) as v
cross join lateral (
    select ended_at from ended where state = 1 and {range} order by {columns}, ended_at, id limit 1
) as first
cross join lateral (
    select ended_at, id from ended where state = 1 and {range} order by {columns_descending}, ended_at desc, id desc limit 1
) as last;
