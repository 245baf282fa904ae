-- Make delayed jobs of a queue ready that are due, at most `max_jobs` of each kind of wait, and make tenants candidates again
-- whose rate allows a job again.
-- Reads queue. Writes tenant, delayed, ready, lane, name_count and queue. Needs the claim lock.
create function promote_due(queue_id int8, now int8, max_jobs int8) returns void language plpgsql as $$
declare
    pauses int8;
    earliest int8[];
begin
    update tenant as t
    set blocked = 0, is_candidate = true, reopens_at = null,
        finish = greatest(t.finish, (select q.clock from queue as q where q.id = t.queue))
    where t.reopens_at <= now;
    if coalesce(first_due_at(queue_id) > now, true) then
        return;
    end if;
    select q.pauses, q.due_watermarks into pauses, earliest from queue as q where q.id = queue_id;
    with due as (
        (select d.waiting_for, d.due_at, d.id from delayed as d
         where d.queue = queue_id and d.waiting_for = 1 and d.due_at between earliest[1] and now and pauses & 1 = 0
         order by d.due_at, d.id limit max_jobs)
        union all
        (select d.waiting_for, d.due_at, d.id from delayed as d
         where d.queue = queue_id and d.waiting_for = 2 and d.due_at between earliest[2] and now and pauses & 2 = 0
         order by d.due_at, d.id limit max_jobs)
        union all
        (select d.waiting_for, d.due_at, d.id from delayed as d
         where d.queue = queue_id and d.waiting_for = 3 and d.due_at between earliest[3] and now
         order by d.due_at, d.id limit max_jobs)
        union all
        (select d.waiting_for, d.due_at, d.id from delayed as d
         where d.queue = queue_id and d.waiting_for = 4 and d.due_at between earliest[4] and now
         order by d.due_at, d.id limit max_jobs)
    ), gone as (
        -- A job whose enqueue was committed a moment ago may be on a lane that no claim has created yet: it waits for the next.
        delete from delayed as d using due
        where d.queue = queue_id and d.waiting_for = due.waiting_for and d.due_at = due.due_at and d.id = due.id
          and (select l.id from lane as l where l.id = d.lane) is not null
        returning d.waiting_for, order_at(d.sla_at, d.due_at, d.id) as ready_at, d.id, d.lane
    ), arrived as (
        insert into ready (lane, ready_at, id) select lane, ready_at, id from gone
    ), sums as (
        select lane, count(*) as ready, count(*) filter (where waiting_for = 1) as scheduled,
               count(*) filter (where waiting_for = 2) as retrying, count(*) filter (where waiting_for > 2) as parked,
               min(ready_at) as first_ready_at
        from gone group by lane
    ), counted as (
        update lane as l
        set ready = l.ready + v.ready, scheduled = l.scheduled - v.scheduled, retrying = l.retrying - v.retrying,
            parked = l.parked - v.parked, ready_watermark = least(l.ready_watermark, v.first_ready_at),
            is_open = l.blocked_by = 0
        from sums as v where l.id = v.lane
        returning l.tenant, l.queue_name, l.task, l.dependency, v.ready, v.scheduled, v.retrying, v.parked
    ), named as (
        insert into name_count (subject, name, ready, scheduled, retrying, parked)
        select s.subject, s.name, sum(c.ready), -sum(c.scheduled), -sum(c.retrying), -sum(c.parked)
        from counted as c
        cross join lateral (values ('queue', c.queue_name), ('task', c.task), ('dependency', c.dependency)) as s (subject, name)
        group by s.subject, s.name
        on conflict (subject, name) do update
        set ready = name_count.ready + excluded.ready, scheduled = name_count.scheduled + excluded.scheduled,
            retrying = name_count.retrying + excluded.retrying, parked = name_count.parked + excluded.parked
    )
    update tenant as t
    set is_candidate = true,
        finish = greatest(t.finish, (select q.clock from queue as q where q.id = queue_id))
    where t.id in (select c.tenant from counted as c) and not t.is_candidate and t.blocked = 0;
    update queue as q set due_watermarks = array(
        select greatest(earliest[w], least(now + 1, (
            select d.due_at from delayed as d
            where d.queue = queue_id and d.waiting_for = w and d.due_at >= earliest[w] order by d.due_at limit 1
        ))) from generate_series(1, 4) as w order by w
    ) where q.id = queue_id;
end
$$;
