-- name: version
select version from entry where key = %(key)s;

-- name: number
select nextval('entry_version');

-- name: delete
delete from entry where key = %(key)s;

-- name: set
insert into entry (key, version, value) values (%(key)s, %(version)s, %(value)s)
on conflict (key) do update set version = excluded.version, value = excluded.value;

-- name: note_change
insert into entry_change (number, key, stamp) values (%(number)s, %(key)s, %(stamp)s);

-- name: forget_changes
delete from entry_change where number <= %(number)s;

-- name: one
select key, version, value from entry where key = %(key)s;

-- name: all
select key, version, value from entry where starts_with(key, %(prefix)s) order by key;

-- name: newest_change
select number, stamp from entry_change order by number desc limit 1;

-- name: stamp
select stamp from entry_change where number = %(number)s;

-- name: changed
select c.key, c.number, e.version, e.value
from (
    select key, max(number) as number from entry_change
    where number > %(number)s and starts_with(key, %(prefix)s) group by key
) as c left join entry as e on e.key = c.key order by c.key;

-- name: by_stamp
select number from entry_change where stamp = %(stamp)s and key = %(key)s;
