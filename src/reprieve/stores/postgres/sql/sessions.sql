-- name: open
insert into session (name, expires_at, slots, release) values (%(name)s, %(expires_at)s, %(slots)s, %(release)s)
on conflict (name) do nothing;

-- name: heartbeat
update session set expires_at = %(expires_at)s, slots = %(slots)s, is_dead = %(is_dead)s, release = %(release)s
where name = %(name)s and not is_dead
returning id;

-- name: expire
update session set is_dead = true where not is_dead and expires_at < %(now)s;

-- name: dead
select id, name from session where is_dead order by id;

-- name: close
delete from session where id = %(session)s;

-- name: leases
select leased_at, jobs from lease where session = %(session)s and claim between %(since)s and %(up_to)s order by claim;

-- name: jobs
select id, state, version, waiting_for, due_at, lane, record from job where id = any (%(ids)s::uuid[]);

-- name: time
select (extract(epoch from clock_timestamp()) * 1000000)::int8;
