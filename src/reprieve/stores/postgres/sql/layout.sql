-- name: looks
select exists (select 1 from pg_class where relnamespace = n.oid and relname = 'layout'),
       exists (select 1 from pg_class where relnamespace = n.oid and relkind in ('r', 'p', 'v'))
from pg_namespace as n where n.nspname = %(schema)s;

-- name: steps
select number, checksum from layout order by number;

-- name: lock
select pg_advisory_xact_lock(1919250544);

-- name: schema
create schema if not exists {schema};

-- name: table
create table layout (number int8 primary key, checksum text not null, applied_at timestamptz not null default now());

-- name: note
insert into layout (number, checksum) values (%(number)s, %(checksum)s);
