-- name: lock
select pg_try_advisory_xact_lock(1919250545, ('series'::regclass::oid::int8 & 2147483647)::int4);

-- name: add_delta
insert into series_delta (packed) values (%(packed)s);

-- name: take_deltas
delete from series_delta where seq = any (array(select seq from series_delta order by seq limit %(max_rows)s)) returning packed;

-- name: lines_of_buckets
select s.step, s.at, s.subject, s.name, s.packed
from json_to_recordset(%(buckets)s::json) as b (step int2, at int8, subject int2)
cross join lateral (
    select * from series where series.step = b.step and series.at = b.at and series.subject = b.subject offset 0
) as s;

-- name: write_lines
insert into series (step, at, subject, name, packed)
select * from unnest(%(steps)s::int2[], %(ats)s::int8[], %(subjects)s::int2[], %(names)s::text[], %(packed)s::bytea[])
on conflict (step, at, subject, name) do update set packed = excluded.packed;

-- name: lines_of_names
select n.name, a.at::int8, s.packed
from json_array_elements_text(%(names)s::json) as n (name) cross join json_array_elements_text(%(ats)s::json) as a (at)
cross join lateral (
    select packed from series
    where series.step = %(step)s::int2 and series.at = a.at::int8 and series.subject = %(subject)s::int2
      and series.name = n.name offset 0
) as s;

-- name: lines_of_subject
select s.name, a.at::int8, s.packed from json_array_elements_text(%(ats)s::json) as a (at)
cross join lateral (
    select name, packed from series
    where series.step = %(step)s::int2 and series.at = a.at::int8 and series.subject = %(subject)s::int2 offset 0
) as s;

-- name: prune
with gone as (
    delete from series where ctid = any (array(
        select ctid from series where step = %(step)s::int2 and at < %(before)s order by at limit %(max_rows)s
    )) returning 1
)
select count(*) from gone;
