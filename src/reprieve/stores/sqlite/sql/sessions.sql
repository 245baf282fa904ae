-- name: number
update reprieve_counter as counter set value = value + 1 where name = 'session' returning value;

-- name: open
insert into reprieve_session (id, name, expires_at, slots) values (?, ?, ?, ?) on conflict (name) do nothing;

-- name: heartbeat
update reprieve_session as session
set expires_at = :expires_at, slots = :slots, prefetch = :prefetch, running = :running, queues = :queues, heartbeat_at = :now,
    is_dead = :is_dead
where name = :name and is_dead = 0;

-- name: open_origin
insert into reprieve_session_origin (id, origin) select id, ? from reprieve_session as session where name = ?
on conflict (id) do nothing;

-- name: read
select session.name, session.heartbeat_at, session.slots, session.prefetch, session.running, session.queues, origin.origin
from reprieve_session as session left join reprieve_session_origin as origin on origin.id = session.id
where session.is_dead = 0 and session.expires_at >= :now order by session.name;

-- name: expire
update reprieve_session as session set is_dead = 1 where is_dead = 0 and expires_at < ? returning name;

-- name: dead
select id, name from reprieve_session as session where is_dead = 1 order by id;

-- name: close
delete from reprieve_session as session where id = ?;

-- name: close_origin
delete from reprieve_session_origin as origin where id = ?;

-- name: leases
select at, jobs from reprieve_lease as lease where id between ? and ?;
