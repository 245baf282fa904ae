-- Return when the first delayed job of a queue is due, of the kinds of wait that are not paused; null if there is none.
-- Reads queue and delayed.
create function first_due_at(queue_id int8) returns int8 language plpgsql as $$
begin
    return (select least(
        case when q.pauses & 1 = 0 then (
            select d.due_at from delayed as d where d.queue = queue_id and d.waiting_for = 1 and d.due_at >= q.due_watermarks[1]
            order by d.due_at limit 1
        ) end,
        case when q.pauses & 2 = 0 then (
            select d.due_at from delayed as d where d.queue = queue_id and d.waiting_for = 2 and d.due_at >= q.due_watermarks[2]
            order by d.due_at limit 1
        ) end,
        (select d.due_at from delayed as d where d.queue = queue_id and d.waiting_for = 3 and d.due_at >= q.due_watermarks[3]
         order by d.due_at limit 1),
        (select d.due_at from delayed as d where d.queue = queue_id and d.waiting_for = 4 and d.due_at >= q.due_watermarks[4]
         order by d.due_at limit 1)
    ) from queue as q where q.id = queue_id);
end
$$;
