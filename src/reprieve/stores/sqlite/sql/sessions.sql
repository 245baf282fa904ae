-- name: number
update counter set value = value + 1 where name = 'session' returning value;

-- name: open
insert into session (id, name, expires_at, slots) values (?, ?, ?, ?) on conflict (name) do nothing;

-- name: beat
update session
set expires_at = :expires_at, slots = :slots, is_dead = :is_dead
where name = :name and is_dead = 0 and expires_at >= :now
returning id;

-- name: bury
update session set is_dead = 1 where is_dead = 0 and expires_at < ?;

-- name: dead
select id, name from session where is_dead = 1 order by id;

-- name: close
delete from session where id = ?;

-- name: all
select id, name from session;

-- name: leases
select at, jobs from lease where id between ? and ?;

-- name: job
select id, state, version, wait, due, rec from job where id = ?;

-- name: marks
select id from mark where cancel = 1;

-- name: mark
insert into mark (id, cancel, progress) values (?, ?, ?)
on conflict (id) do update set
    cancel = max(cancel, excluded.cancel), progress = coalesce(excluded.progress, progress);
