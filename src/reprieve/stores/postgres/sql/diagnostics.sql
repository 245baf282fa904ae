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
-- Open transactions and prepared ones: vacuum removes no row that one of them may still see.
select greatest(
    (select max(extract(epoch from clock_timestamp() - xact_start)) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'),
    (select max(extract(epoch from clock_timestamp() - prepared)) from pg_prepared_xacts where database = current_database()),
    0
)::int8;

-- name: behind
-- Replicas with hot_standby_feedback keep dead rows as well, and replication slots even after their replica is gone.
select name, age(oldest)::int8 from (
    select slot_name::text, xmin from pg_replication_slots union all select application_name, backend_xmin from pg_stat_replication
) as replica (name, oldest)
where oldest is not null order by age(oldest) desc limit 1;

-- name: replica
select pg_is_in_recovery();

-- name: clock
select (extract(epoch from clock_timestamp()) * 1000)::int8;

-- name: vacuum
select current_setting('autovacuum'), (
    select string_agg(relname, ', ' order by relname) from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r'
      and reloptions && array['autovacuum_enabled=false', 'autovacuum_enabled=off']
);

-- name: connections
select current_setting('max_connections')::int8, (select count(*) from pg_stat_activity where backend_type = 'client backend');

-- name: rights
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relname <> 'schema_version' and not relispartition and case
    when relkind in ('r', 'p') then not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
                                         and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))
    when relkind = 'S' then not has_sequence_privilege(oid, 'usage')
    else false
end
union all
select proname from pg_proc
where pronamespace = current_schema()::regnamespace and proname = any (%(functions)s::text[])
  and not has_function_privilege(oid, 'execute')
order by relname;

-- name: hash_collisions
select count(*), min(task), min(tenant), min(lowest_id::text) from hash_collision;

-- name: indexes
select c.relname, i.indisvalid and i.indisready
from pg_index as i join pg_class as c on c.oid = i.indexrelid where c.relnamespace = current_schema()::regnamespace;

-- name: records
select record from job;
