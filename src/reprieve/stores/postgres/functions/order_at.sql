-- Return what orders a job in its lane: its SLA, or when it became ready. `order_at` in rows.py returns the same.
-- Reads, writes and locks nothing.
create function order_at(sla_at int8, due_at int8, id uuid) returns int8 language sql immutable as $$
    select coalesce(sla_at, ready_at(due_at, id))
$$;
