-- name: state
-- Whether the schema is ours, whether it holds tables at all, and whether the user may change it.
select exists (select 1 from pg_class where relnamespace = n.oid and relname = 'schema_version') as is_ours,
       exists (select 1 from pg_class where relnamespace = n.oid and relkind in ('r', 'p', 'v')) as is_used,
       coalesce((
           select pg_has_role(relowner, 'usage') from pg_class where relnamespace = n.oid and relname = 'schema_version'
       ), true) as is_owner
from pg_namespace as n where n.nspname = %(schema)s;

-- name: versions
select version, checksum, coalesce(oldest_schema, version) as oldest_schema,
       coalesce(oldest_release, 'its own') as oldest_release, coalesce(migrated_by, 'of a newer release') as migrated_by
from schema_version order by version;

-- name: lock
select pg_advisory_xact_lock(1919250544);

-- name: create_schema
create schema if not exists {schema};

-- name: create_version_table
-- Which releases can use the schema is in the row of its newest version; one without it only those that know that version.
create table schema_version (
    version        int8 primary key,
    checksum       text not null,
    applied_at     timestamptz not null default now(),
    oldest_schema  int8, -- the lowest schema version whose releases can use the schema
    oldest_release text, -- the first release that knows it
    migrated_by    text
);

-- name: add_version
insert into schema_version (version, checksum, oldest_schema, oldest_release, migrated_by)
values (%(version)s, %(checksum)s, %(oldest_schema)s, %(oldest_release)s, %(migrated_by)s);

-- name: missing_functions
select name from unnest(%(names)s::text[]) as name
where not exists (select 1 from pg_proc where pronamespace = current_schema()::regnamespace and proname = name);

-- name: needs_use_note
-- A user who may only read is not noted, and a replica cannot note it.
select not pg_is_in_recovery() and has_table_privilege('release', 'insert') and has_table_privilege('release', 'update')
   and not exists (select 1 from release where id = %(release)s and used_at > now() - interval '1 hour');

-- name: note_use
insert into release (id, functions, used_at, schema_version) values (%(release)s, %(names)s::text[], now(), %(known)s)
on conflict (id) do update set used_at = excluded.used_at;

-- name: forget_releases
-- Releases that no session uses, and no other process for a while.
with gone as (
    delete from release as r
    where r.id <> %(release)s and r.used_at < now() - make_interval(secs => %(grace_seconds)s)
      and not exists (select 1 from session as s where s.release = r.id and not s.is_dead)
    returning r.id, r.functions
)
select name from (select distinct unnest(functions) as name from gone) as unused
where name <> all (%(names)s::text[])
  and not exists (
      select 1 from release as r where name = any (r.functions) and r.id <> all (array(select id from gone))
  );

-- name: exclude_releases
-- Releases that cannot use the schema any more: their sessions are dead, so that others recover the jobs.
with gone as (
    delete from release where schema_version < %(oldest_schema)s returning id, functions
), dead as (
    update session set is_dead = true where release in (select id from gone)
)
select distinct unnest(functions) as name from gone;

-- name: drop_function
select format('drop function %%s', oid::regprocedure) from pg_proc
where pronamespace = current_schema()::regnamespace and proname = %(name)s and proname ~ '_[0-9a-f]{8}$';

-- name: create_first_days
-- Today as well, so that nothing is stored among the other days where clocks are right.
select create_event_days((extract(epoch from now()) * 1000)::int8 - 86400000, 4);
