-- name: version
select version from entry where key = %(key)s and (expires_at is null or expires_at > %(now)s);

-- name: number
select nextval('entry_version');

-- name: delete
delete from entry where key = %(key)s;

-- name: set
insert into entry (key, version, value, expires_at) values (%(key)s, %(version)s, %(value)s, %(expires_at)s)
on conflict (key) do update set version = excluded.version, value = excluded.value, expires_at = excluded.expires_at;

-- name: note_change
insert into entry_change (number, key, stamp) values (%(number)s, %(key)s, %(stamp)s);

-- name: forget_changes
delete from entry_change where number <= %(number)s;

-- name: one
select key, version, value, expires_at from entry where key = %(key)s and (expires_at is null or expires_at > %(now)s);

-- name: page
-- Keys are in the order of their bytes, and `last` is after all that begin with the prefix.
select key, version, value, expires_at from entry where key >= %(first)s and key > %(cursor)s and key <= %(last)s
order by key limit %(count)s;

-- name: expired
select key from entry where expires_at <= %(now)s order by expires_at limit %(max_rows)s;

-- name: newest_change
select number, stamp from entry_change order by number desc limit 1;

-- name: stamp
select stamp from entry_change where number = %(number)s;

-- name: changed
select c.key, c.number, e.version, e.value, e.expires_at
from (
    select key, max(number) as number from entry_change
    where number > %(number)s and starts_with(key, %(prefix)s) group by key
) as c left join entry as e on e.key = c.key order by c.key;

-- name: by_stamp
select number from entry_change where stamp = %(stamp)s and key = %(key)s;
