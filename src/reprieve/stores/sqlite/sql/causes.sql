-- name: add
insert into reprieve_cause as cause (fate, kind, scope, name, count, first_at, last_at, sample)
select column1, column2, column3, column4, column5, column6, column7, column8 from (values {values}) where column1 is not null
on conflict (fate, kind, scope, name) do update set
    count = cause.count + excluded.count,
    first_at = case when cause.last_at < excluded.first_at - 86400000 then excluded.first_at else cause.first_at end,
    sample = case when excluded.last_at >= cause.last_at then excluded.sample else cause.sample end,
    last_at = max(cause.last_at, excluded.last_at);

-- name: add_hours
insert into reprieve_cause_hour as cause_hour (fate, kind, scope, name, hour, count)
select column1, column2, column3, column4, column5, column6 from (values {values}) where column1 is not null
on conflict (fate, kind, scope, name, hour) do update set count = cause_hour.count + excluded.count;

-- name: remove
-- The last of the dead jobs that are left is at the end of an index of theirs.
update reprieve_cause as cause set count = count - v.column4, last_at = coalesce(case kind
    when 'f' then (select at from reprieve_ended as ended where state = 1 and fingerprint = cause.name order by at desc limit 1)
    when 'c' then (select at from reprieve_ended as ended where state = 1 and code = cause.name order by at desc limit 1)
    when 't' then (select at from reprieve_ended as ended where state = 1 and tenant = cause.name order by at desc limit 1)
    when 'k' then (select at from reprieve_ended as ended where state = 1 and task = cause.name order by at desc limit 1)
    when 'x' then (select at from reprieve_ended as ended where state = 1 and death = cause.name order by at desc limit 1)
    when 'p' then (select at from reprieve_ended as ended
                   where state = 1 and tenant = cause.scope and fingerprint = cause.name order by at desc limit 1)
    else (select at from reprieve_ended as ended
          where state = 1 and tenant = cause.name and fingerprint = cause.scope order by at desc limit 1)
end, 0)
from (values {values}) as v
where cause.fate = 0 and cause.kind = v.column1 and cause.scope = v.column2 and cause.name = v.column3;

-- name: remove_living
update reprieve_cause as cause set count = count - v.column4 from (values {values}) as v
where cause.fate = 1 and cause.kind = v.column1 and cause.scope = v.column2 and cause.name = v.column3;

-- name: remove_empty
delete from reprieve_cause as cause where count <= 0;

-- name: prune_hours
delete from reprieve_cause_hour as cause_hour where (fate, kind, scope, name, hour) in (
    select fate, kind, scope, name, hour from (
        select * from (select * from reprieve_cause_hour as dead where fate = 0 and hour < :dead_before limit :max_rows)
        union all
        select * from (select * from reprieve_cause_hour as living where fate = 1 and hour < :living_before limit :max_rows)
    ) as old
) returning fate, kind, scope, name, count;

-- name: by_count
select name, count, first_at, last_at, sample from reprieve_cause as cause
where fate = :fate and kind = :kind and scope = :scope and (count, name) < (:value, :name) and +last_at >= :since
order by count desc, name desc limit :limit;

-- name: by_last
select name, count, first_at, last_at, sample from reprieve_cause as cause
where fate = :fate and kind = :kind and scope = :scope and (last_at, name) < (:value, :name) and last_at >= :since
order by last_at desc, name desc limit :limit;

-- name: named
select name, count, first_at, last_at, sample from reprieve_cause as cause
where fate = :fate and kind = :kind and scope = :scope and name in (select value from json_each(:names)) and +last_at >= :since;

-- name: total
select count(*) from (
    select 1 from reprieve_cause as cause where fate = :fate and kind = :kind and scope = :scope and last_at >= :since limit :most
);

-- name: hours
select name, hour, count from reprieve_cause_hour as cause_hour
where fate = :fate and kind = :kind and scope = :scope and name in (select value from json_each(:names)) and hour >= :since;

-- name: hours_of_tenants
select scope, hour, count from reprieve_cause_hour as cause_hour
where fate = :fate and kind = 'p' and scope in (select value from json_each(:names)) and name = :scope and hour >= :since;

-- name: ends
select v.name,
       (select at from reprieve_ended as ended where state = 1 and {condition} order by at, id limit 1),
       last.at, last.id, substr(job.record, 1, 8)
from (select value as name, :scope as scope from json_each(:names)) as v
join reprieve_ended as last on (last.queue, last.state, last.at, last.id) = (
    select queue, state, at, id from reprieve_ended as ended where state = 1 and {condition} order by at desc, id desc limit 1
)
join reprieve_job as job on job.id = last.id;
