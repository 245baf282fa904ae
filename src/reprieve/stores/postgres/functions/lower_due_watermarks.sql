-- Lower the due watermarks of queues to the times at which these delayed jobs are due.
-- Writes queue. Needs the claim lock.
create function lower_due_watermarks(queues int8[], due_ats int8[]) returns void language plpgsql as $$
begin
    update queue as q
    set due_watermarks = array(
        select least(watermark, v.due_at) from unnest(q.due_watermarks) with ordinality as w (watermark, waiting_for)
        order by waiting_for
    )
    from (
        select d.queue, min(d.due_at) as due_at from unnest(queues, due_ats) as d (queue, due_at) group by d.queue
    ) as v
    where q.id = v.queue and v.due_at < any (q.due_watermarks);
end
$$;
