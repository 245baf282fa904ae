-- Read what a claim of one queue chooses from: the tenants that are next in the fair order, with their open lanes and the limiters
-- of these. Besides, the tenants and limiters to which the claim is about to release slots, and the limiters whose blocked lanes
-- may return.
--
-- Tenants are read in the order (load, finish, name), after the given position. Of each tenant the first `max_lanes` lanes are
-- read, and one more if there are more; then also, of each priority, the lane that was served longest ago. `checks_crowd` lets
-- the claim check whether the candidates have become a crowd (256 or more): from then on an index knows their order.
-- Reads queue, limiter, tenant, lane and delayed. Writes tenant.is_in_crowd. Needs the claim lock.
-- Returns JSON, with an array for each row, in the order of the fields of the records in candidates.py: `CandidateRows`.
create function candidates(
    queue_id int8, max_tenants int8, max_lanes int8, after_load int8, after_finish int8, after_name text, now int8,
    released_tenants int8[], released_limiters int8[], checks_crowd boolean
) returns text language plpgsql as $$
begin
    if checks_crowd and (select count(*) from (
        select 1 from tenant as t where t.queue = queue_id and t.is_candidate and not t.is_in_crowd limit 256
    ) as few) = 256 then
        update tenant as t set is_in_crowd = true where t.queue = queue_id and t.is_candidate and not t.is_in_crowd;
    end if;
    return (
    with next_tenant as materialized (
        select t.* from (
            (select v.ctid as row_location, v.* from tenant as v
             where v.queue = queue_id and v.is_candidate and not v.is_in_crowd
               and (v.load, v.finish, v.name) > (after_load, after_finish, after_name))
            union all
            (select v.ctid as row_location, v.* from tenant as v
             where v.queue = queue_id and v.is_candidate and v.is_in_crowd
               and (v.crowd_load, v.crowd_finish, v.name) > (after_load, after_finish, after_name)
             order by v.crowd_load, v.crowd_finish, v.name limit max_tenants)
        ) as t order by t.load, t.finish, t.name limit max_tenants
    ), read_tenant as materialized (
        select true as is_next, n.* from next_tenant as n
        union all
        select false, t.ctid, t.* from tenant as t
        where t.id = any (released_tenants) and t.id <> all (array(select n.id from next_tenant as n))
    ), first_lane as materialized (
        select l.* from read_tenant as t cross join lateral (
            select false as is_oldest, lane.ctid as row_location, lane.* from lane
            where lane.tenant = t.id and lane.is_open order by lane.priority, lane.served limit max_lanes + 1
        ) as l
        where t.is_candidate or t.blocked = 1
    ), read_lane as materialized (
        select f.* from first_lane as f
        union all
        select l.* from (select f.tenant from first_lane as f group by f.tenant having count(*) > max_lanes) as many
        cross join lateral (
            select distinct on (lane.priority) true, lane.ctid, lane.* from lane
            where lane.tenant = many.tenant and lane.is_open order by lane.priority, lane.served
        ) as l
    ), returning_limiter as materialized (
        (select g.id from limiter as g where g.reopens_at <= now order by g.reopens_at limit 16)
        union all
        select g.id from limiter as g
        where g.id = any (released_limiters) and g.has_blocked_lanes and coalesce(g.reopens_at > now, true)
    )
    select json_build_object(
        'queue', (
            select json_build_array(
                q.clock, q.last_tenant, q.in_a_row, q.last_served_at, q.other_served_at, q.limiter, first_due_at(queue_id),
                least(
                    (select g.reopens_at from limiter as g where g.reopens_at is not null order by g.reopens_at limit 1),
                    (select t.reopens_at from tenant as t where t.reopens_at is not null order by t.reopens_at limit 1)
                ))
            from queue as q where q.id = queue_id
        ),
        'tenants', coalesce((
            select json_agg(json_build_array(
                t.id, t.permits, t.max_running, t.rate_count, t.rate_window, t.meter, t.running, t.name, t.weight, t.load,
                t.finish, t.served, t.is_candidate, t.blocked, t.is_next, t.row_location))
            from read_tenant as t
        ), '[]'),
        'lanes', coalesce((
            select json_agg(json_build_array(
                l.id, l.priority, l.served, l.ready, json_build_array(
                    l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter),
                l.tenant, l.fresh_watermark, l.ready_watermark, l.row_location, l.is_oldest))
            from read_lane as l
        ), '[]'),
        'limiters', coalesce((
            select json_agg(json_build_array(
                g.id, g.permits, g.max_running, g.rate_count, g.rate_window, g.meter, g.running, g.last_returned_tenant,
                g.id = any (array(select r.id from returning_limiter as r)), g.ctid))
            from limiter as g where g.id = any (array(
                select unnest(array[l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter]) from read_lane as l
                union select unnest(released_limiters)
                union select r.id from returning_limiter as r union select q.limiter from queue as q where q.id = queue_id
            ))
        ), '[]')
    )::text);
end
$$;
