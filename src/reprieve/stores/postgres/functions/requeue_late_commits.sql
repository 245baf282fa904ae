-- Put fresh jobs into `ready` that are at or below the watermark of their lane and were not taken: their transaction was
-- committed after jobs with a larger id were taken.
-- Reads job, lane and lease. Writes ready and lane. Needs the claim lock.
create function requeue_late_commits(additions lane_addition[]) returns void language plpgsql as $$
begin
    insert into ready (lane, ready_at, id)
    select late.lane, ready_at(late.due_at, late.id), late.id
    from unnest(additions) as a join lane as l on l.id = a.lane
    join lateral (
        select job.lane, job.due_at, job.id from job
        where job.state = 3 and job.lane = a.lane and job.id between a.lowest_id and least(a.highest_id, l.fresh_watermark)
        offset 0    -- so that each lane is looked up, however few fresh jobs the server believes there are
    ) as late on true
    where a.ready > 0 and a.lowest_id <= l.fresh_watermark and uuid_send(late.id) not in (select leased_ids())
    on conflict do nothing;
    update lane as l set ready_watermark = least(l.ready_watermark, ready_at(null, a.lowest_id)) from unnest(additions) as a
    where l.id = a.lane and a.ready > 0 and a.lowest_id <= l.fresh_watermark;
end
$$;
