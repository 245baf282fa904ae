-- name: open
insert into session (name, expires_at, slots) values (%(name)s, %(expires_at)s, %(slots)s) on conflict (name) do nothing;

-- name: heartbeat
update session set expires_at = %(expires_at)s, slots = %(slots)s, is_dead = %(is_dead)s
where name = %(name)s and not is_dead
returning id;

-- name: bury
update session set is_dead = true where not is_dead and expires_at < %(now)s;

-- name: dead
select id, name from session where is_dead order by id;

-- name: close
delete from session where id = %(session)s;

-- name: leases
select at, jobs from lease where session = %(session)s and number between %(since)s and %(up_to)s order by number;

-- name: jobs
select id, state, version, wait, due, lane, rec from job where id = any (%(ids)s::uuid[]);

-- name: time
select (extract(epoch from clock_timestamp()) * 1000000)::int8;
