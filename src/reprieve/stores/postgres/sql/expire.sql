-- name: is_due
select exists (select 1 from expiring where expires_at <= %(now)s)
    or exists (select 1 from lane where expires_at <= %(now)s and expires_at is not null)
    or exists (select 1 from unswept_addition);

-- name: has_uncounted_deadline
select exists (select 1 from uncounted_enqueue as u
               where u.xid >= pg_snapshot_xmax(%(counted)s::pg_snapshot) and u.min_span is not null)
    or exists (select 1 from uncounted_enqueue as u
               where u.xid = any (array(select pg_snapshot_xip(%(counted)s::pg_snapshot))) and u.min_span is not null);

-- name: remove_leftovers
-- A subquery that returns a value instead of `exists`, as in settle.sql.
delete from expiring where ctid = any (array(
    select due.row_location from (
        select ctid as row_location, id from expiring where expires_at <= %(now)s order by expires_at, id limit %(limit)s
    ) as due
    where (select job.id from job where job.id = due.id and job.state not in (1, 2)) is null
));

-- name: take_due
delete from expiring where ctid = any (array(
    select ctid from expiring where expires_at <= %(now)s order by expires_at, id limit %(limit)s
)) returning id;

-- name: add
insert into expiring (expires_at, id) select * from unnest(%(expires_ats)s::int8[], %(ids)s::uuid[]) on conflict do nothing;

-- name: remove
delete from expiring as e using unnest(%(expires_ats)s::int8[], %(ids)s::uuid[]) as v (expires_at, id)
where e.expires_at = v.expires_at and e.id = v.id;

-- name: due_lanes
select id as lane, ready, deadline_span as span, swept_until, expires_at from lane
where expires_at <= %(now)s and expires_at is not null order by expires_at limit %(limit)s;

-- name: set_span
update lane set swept_until = %(swept_until)s, expires_at = %(expires_at)s where id = %(lane)s;

-- name: fresh_jobs
select job.id, job.state, job.version, job.waiting_for, job.due_at, job.lane, job.record from job
where job.state = 3 and job.lane = %(lane)s and job.id between %(lowest_id)s::uuid and %(highest_id)s::uuid
  and job.id > (select l.fresh_watermark from lane as l where l.id = %(lane)s)
order by job.id limit %(limit)s;

-- name: next_fresh_id
select job.id from job
where job.state = 3 and job.lane = %(lane)s and job.id > %(lowest_id)s::uuid
  and job.id > (select l.fresh_watermark from lane as l where l.id = %(lane)s)
order by job.id limit 1;

-- name: unswept_additions
select id from unswept_addition order by id limit %(limit)s;

-- name: added_jobs
select j.id, j.state, j.version, j.waiting_for, j.due_at, j.lane, j.record, u.id as addition
from (select * from unswept_addition where id = any (%(additions)s::int8[])) as u
cross join lateral (
    select * from job
    where job.state = 3 and job.lane = u.lane and job.id between u.lowest_id and u.highest_id order by job.id limit %(limit)s
) as j
order by u.id, j.id limit %(limit)s;

-- name: remove_additions
delete from unswept_addition where id = any (%(additions)s::int8[]);

-- name: shorten_addition
update unswept_addition set lowest_id = %(lowest_id)s::uuid where id = %(addition)s;
