-- name: version
select version from reprieve_cell where key = ?;

-- name: delete
delete from reprieve_cell where key = ?;

-- name: number
update reprieve_counter set value = value + 1 where name = 'cell' returning value;

-- name: set
insert into reprieve_cell (key, version, value) values (?, ?, ?)
on conflict (key) do update set version = excluded.version, value = excluded.value;

-- name: all
select key, version, value from reprieve_cell where substr(key, 1, ?) = ? order by key;
