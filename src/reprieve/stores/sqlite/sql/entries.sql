-- name: version
select version from reprieve_entry where key = ?;

-- name: delete
delete from reprieve_entry where key = ?;

-- name: number
update reprieve_counter set value = value + 1 where name = 'entry' returning value;

-- name: set
insert into reprieve_entry (key, version, value) values (?, ?, ?)
on conflict (key) do update set version = excluded.version, value = excluded.value;

-- name: all
select key, version, value from reprieve_entry where substr(key, 1, ?) = ? order by key;
