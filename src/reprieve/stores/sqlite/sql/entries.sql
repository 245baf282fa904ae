-- name: version
select version from reprieve_entry as entry where key = :key;

-- name: number
update reprieve_counter set value = value + 1 where name = 'entry' returning value;

-- name: delete
delete from reprieve_entry as entry where key = :key;

-- name: set
insert into reprieve_entry (key, version, value) values (:key, :version, :value)
on conflict (key) do update set version = excluded.version, value = excluded.value;

-- name: note_change
insert into reprieve_entry_change (number, key, stamp) values (:number, :key, :stamp);

-- name: forget_changes
delete from reprieve_entry_change as change where number <= :number;

-- name: one
select key, version, value from reprieve_entry as entry where key = :key;

-- name: all
select key, version, value from reprieve_entry as entry where substr(key, 1, length(:prefix)) = :prefix order by key;

-- name: newest_change
select number, stamp from reprieve_entry_change as change order by number desc limit 1;

-- name: stamp
select stamp from reprieve_entry_change as change where number = :number;

-- name: changed
select change.key, max(change.number), entry.version, entry.value
from reprieve_entry_change as change left join reprieve_entry as entry on entry.key = change.key
where change.number > :number and substr(change.key, 1, length(:prefix)) = :prefix group by change.key order by change.key;

-- name: by_stamp
select number from reprieve_entry_change as change where stamp = :stamp and key = :key;
