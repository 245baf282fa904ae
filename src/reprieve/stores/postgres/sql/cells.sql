-- name: version
select version from cell where key = %(key)s;

-- name: delete
delete from cell where key = %(key)s;

-- name: set
insert into cell (key, version, value) values (%(key)s, nextval('cell_version'), %(value)s)
on conflict (key) do update set version = excluded.version, value = excluded.value
returning version;

-- name: all
select key, version, value from cell where starts_with(key, %(prefix)s) order by key;
