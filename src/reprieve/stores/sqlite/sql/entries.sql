-- name: version
select version from reprieve_entry as entry where key = :key and (expires_at is null or expires_at > :now);

-- name: number
update reprieve_counter set value = value + 1 where name = 'entry' returning value;

-- name: delete
delete from reprieve_entry as entry where key = :key;

-- name: set
insert into reprieve_entry (key, version, value, expires_at) values (:key, :version, :value, :expires_at)
on conflict (key) do update set version = excluded.version, value = excluded.value, expires_at = excluded.expires_at;

-- name: note_change
insert into reprieve_entry_change (number, key, stamp) values (:number, :key, :stamp);

-- name: forget_changes
delete from reprieve_entry_change as change where number <= :number;

-- name: one
select key, version, value, expires_at from reprieve_entry as entry where key = :key and (expires_at is null or expires_at > :now);

-- name: page
-- Keys are in the order of their bytes, and `last` is after all that begin with the prefix.
select key, version, value, expires_at from reprieve_entry as entry where key >= :first and key > :cursor and key <= :last
order by key limit :count;

-- name: expired
select key from reprieve_entry as entry where expires_at <= :now order by expires_at limit :max_rows;

-- name: newest_change
select number, stamp from reprieve_entry_change as change order by number desc limit 1;

-- name: stamp
select stamp from reprieve_entry_change as change where number = :number;

-- name: changed
select change.key, max(change.number), entry.version, entry.value, entry.expires_at
from reprieve_entry_change as change left join reprieve_entry as entry on entry.key = change.key
where change.number > :number and substr(change.key, 1, length(:prefix)) = :prefix group by change.key order by change.key;

-- name: by_stamp
select number from reprieve_entry_change as change where stamp = :stamp and key = :key;
