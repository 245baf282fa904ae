-- name: oldest
select seq, data from reprieve_event as event where seq > :after and seq < :before order by seq limit :limit;

-- name: newest
select seq, data from reprieve_event as event where seq > :after and seq < :before order by seq desc limit :limit;

-- name: oldest_of_job
select seq, data from reprieve_event as event
where job = :job and seq > :after and seq < :before order by seq limit :limit;

-- name: newest_of_job
select seq, data from reprieve_event as event
where job = :job and seq > :after and seq < :before order by seq desc limit :limit;

-- name: ends
-- The newest position that an event ever had, and up to which events were deleted.
select coalesce((select seq from sqlite_sequence where name = 'reprieve_event'), 0),
       (select value from reprieve_counter where name = 'events_pruned');

-- name: prune
delete from reprieve_event as event where seq in (
    select seq from reprieve_event as old where at < :before order by at limit :max_rows
) returning seq;

-- name: pruned_to
update reprieve_counter set value = max(value, ?) where name = 'events_pruned';

-- name: tell
insert into reprieve_event (at, version, data) values (?, 0, ?);
