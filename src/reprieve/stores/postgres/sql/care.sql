-- name: settings
select current_setting('fsync'), current_setting('synchronous_commit');

-- name: newest
select max(at) from event;

-- name: sessions
select count(*) filter (where not is_dead and expires_at >= %(now)s), count(*) filter (where is_dead or expires_at < %(now)s)
from session;

-- name: orphans
select l.jobs from lease as l join session as s on s.id = l.session where s.is_dead or s.expires_at < %(now)s;

-- name: oldest
select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::int8 from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid();
