-- name: version
select version from entry where key = %(key)s;

-- name: delete
delete from entry where key = %(key)s;

-- name: set
insert into entry (key, version, value) values (%(key)s, nextval('entry_version'), %(value)s)
on conflict (key) do update set version = excluded.version, value = excluded.value
returning version;

-- name: all
select key, version, value from entry where starts_with(key, %(prefix)s) order by key;
