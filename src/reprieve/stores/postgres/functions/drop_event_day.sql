-- Drop the oldest partition of `event` whose day ended before a time, and ended by the server's clock as well. It runs as the
-- owner of the schema, for roles that may execute it and may drop no tables.
-- Notes up to which position events are gone. Drops a table, and waits at most 100 ms for the lock that this takes on event.
-- Returns the number of events in it, at most 10,000: they are counted under the lock. 0: no partition was dropped.
create function drop_event_day(before int8) returns int8 language plpgsql
security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    ended_before int8 := least(before, extract(epoch from clock_timestamp())::int8 * 1000);
    oldest regclass;
    event_count int8;
    newest int8;
begin
    select c.oid into oldest from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
    where i.inhparent = format('%I.event', current_schema())::regclass and c.relname ~ '^event_[0-9]+$'
      and (substring(c.relname from 7)::int8 + 1) * 86400000 <= ended_before
    order by substring(c.relname from 7)::int8 limit 1;
    if oldest is null then
        return 0;
    end if;
    execute format('select count(*) from (select 1 from %s limit 10000) as event', oldest) into event_count;
    execute format('select seq from %s order by seq desc limit 1', oldest) into newest;
    if newest is not null then
        insert into event_pruned as p (id, position) values (1, newest)
        on conflict (id) do update set position = greatest(p.position, newest);
    end if;
    execute format('drop table %s', oldest);
    return event_count;
exception when lock_not_available then
    return 0;
end
$$;

revoke execute on function drop_event_day(int8) from public;
