-- Set aside additions to lanes whose id is the hash of other names as well, so that no job runs as something else. A job does
-- not know its names, so every waiting job of such a lane between the ids of the addition is set aside (state 4).
-- Reads lane, job, ready, lease and what colliding_lanes reads. Writes hash_collision, job, delayed and lane. Needs the claim
-- lock. Returns the other additions.
create function set_aside_collisions(additions lane_addition[]) returns lane_addition[] language plpgsql as $$
declare
    colliding int8[] := colliding_lanes(additions);
    mixed int8[] := array(
        select a.lane from unnest(additions) as a left join lane as l on l.id = a.lane
        group by a.lane
        having count(*) > 1 or a.lane = any (colliding) or bool_or(
            (l.queue_name, l.tenant_name, l.task, l.dependency, l."group", l.priority)
            <> (a.queue, a.tenant, a.task, a.dependency, a."group", a.priority))
    );
begin
    insert into hash_collision (lane, queue, tenant, task, dependency, "group", priority,
                                ready, scheduled, retrying, parked, lowest_id, highest_id, first_due_at)
    select a.lane, a.queue, a.tenant, a.task, a.dependency, a."group", a.priority,
           a.ready, a.scheduled, a.retrying, a.parked, a.lowest_id, a.highest_id, a.first_due_at
    from unnest(additions) as a where a.lane = any (mixed);
    with found as (
        select distinct j.id, j.lane, j.state, j.waiting_for from unnest(additions) as a
        join job as j on j.lane = a.lane and j.id between a.lowest_id and a.highest_id
        where a.lane = any (mixed) and j.state in (0, 3) and uuid_send(j.id) not in (select leased_ids())
          and not exists (select 1 from ready where ready.lane = j.lane and ready.ready_at = order_at(j.sla_at, j.due_at, j.id) and ready.id = j.id)
    ), set_aside as (
        update job set state = 4 from found where job.id = found.id
    ), undelayed as (
        delete from delayed as d using found where d.lane = found.lane and d.id = found.id
    ), counts as (
        select lane, 1 as sign, count(*) filter (where state = 3) as ready,
               count(*) filter (where state = 0 and waiting_for in (0, 1)) as scheduled,
               count(*) filter (where state = 0 and waiting_for = 2) as retrying,
               count(*) filter (where state = 0 and waiting_for > 2) as parked
        from found group by lane
        union all
        select lane, -1, sum(ready), sum(scheduled), sum(retrying), sum(parked) from unnest(additions) group by lane
    ), counted_before as (
        select lane, sum(sign * ready)::int8 as ready, sum(sign * scheduled)::int8 as scheduled,
               sum(sign * retrying)::int8 as retrying, sum(sign * parked)::int8 as parked
        from counts where lane = any (mixed) group by lane
    )
    update lane as l
    set ready = l.ready - v.ready, scheduled = l.scheduled - v.scheduled, retrying = l.retrying - v.retrying,
        parked = l.parked - v.parked, is_open = l.is_open and l.ready - v.ready > 0
    from counted_before as v where l.id = v.lane;
    -- A collision is too rare to be counted with: all counters of names are made anew.
    delete from name_count;
    perform count_names(array_agg(l.queue_name), array_agg(l.task), array_agg(l.dependency), array_agg(l.ready),
                        array_agg(l.scheduled), array_agg(l.retrying), array_agg(l.parked), array_agg(l.dead),
                        array_agg(l.cancelled))
    from lane as l;
    return array(select a from unnest(additions) as a where a.lane <> all (mixed));
end
$$;
