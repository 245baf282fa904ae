-- name: open
insert into session (name, expires_at, slots, release, origin)
values (%(name)s, %(expires_at)s, %(slots)s, %(release)s, %(origin)s)
on conflict (name) do nothing
returning id;

-- name: heartbeat
update session
set expires_at = %(expires_at)s, slots = %(slots)s, prefetch = %(prefetch)s, running = %(running)s, queues = %(queues)s,
    heartbeat_at = %(now)s, is_dead = %(is_dead)s, release = %(release)s
where name = %(name)s and not is_dead
returning id;

-- name: read
select name, heartbeat_at, slots, prefetch, running, queues, origin
from session where not is_dead and expires_at >= %(now)s order by name collate "C";

-- name: expire
update session set is_dead = true where not is_dead and expires_at < %(now)s returning name;

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
