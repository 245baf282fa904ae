-- Return the ids of all jobs that sessions hold, in the 16 bytes that a lease has of each.
-- Reads lease.
create function leased_ids() returns setof bytea language plpgsql stable as $$
begin
    return query
    select substring(l.jobs from start for 16) from lease as l, generate_series(1, length(l.jobs), 32) as start;
end
$$;
