-- Create the partitions of `event` for the days after this one, seven days at the most. It runs as the owner of the schema, for
-- roles that may execute it and may create no tables.
-- Creates tables, and waits at most 100 ms for the lock that this takes on event: the next call tries again.
create function create_event_days(now int8, count int8) returns void language plpgsql
security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    today int8 := least(now / 86400000, extract(epoch from clock_timestamp())::int8 / 86400 + 1);
    day int8;
begin
    for day in select today + n from generate_series(1, least(count, 7)) as n loop
        if to_regclass(format('%I.event_%s', current_schema(), day)) is null then
            execute format(
                'create table %1$I.%2$I partition of %1$I.event for values from (%3$s) to (%4$s)',
                current_schema(), 'event_' || day, day * 86400000, (day + 1) * 86400000
            );
        end if;
    end loop;
exception when lock_not_available or check_violation or duplicate_table then
    null;
end
$$;

revoke execute on function create_event_days(int8, int8) from public;
