-- name: number
update reprieve_counter as counter set value = value + 1 where name = 'session' returning value;

-- name: open
insert into reprieve_session (id, name, expires_at, slots) values (?, ?, ?, ?) on conflict (name) do nothing;

-- name: heartbeat
update reprieve_session as session
set expires_at = :expires_at, slots = :slots, is_dead = :is_dead
where name = :name and is_dead = 0;

-- name: expire
update reprieve_session as session set is_dead = 1 where is_dead = 0 and expires_at < ?;

-- name: dead
select id, name from reprieve_session as session where is_dead = 1 order by id;

-- name: close
delete from reprieve_session as session where id = ?;

-- name: leases
select at, jobs from reprieve_lease as lease where id between ? and ?;
