-- Return when a job became ready, which orders the jobs of a lane: when it was due, but not before the time in its id, at
-- which it was enqueued. `ready_at` in rows.py returns the same.
-- Reads, writes and locks nothing.
create function ready_at(due_at int8, id uuid) returns int8 language sql immutable as $$
    select greatest(due_at, ('x' || translate(left(id::text, 13), '-', ''))::bit(48)::int8)
$$;
