-- Return until when a rate counts what it has granted up to a moment, or a little longer; 0 if that is nothing. A grant counts for
-- 65 buckets, each 1/64 of the window, rounded up to milliseconds: see core/rate.py.
-- Reads nothing.
create function meter_end(rate_window float8, meter text, at int8) returns int8 language sql immutable as $$
    select case when rate_window is null or meter = '[]' then 0 else at + ceil(rate_window * 1000 * 65 / 64)::int8 + 70 end
$$;
