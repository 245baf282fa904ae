-- Acquire the claim lock, then count what enqueues have added to lanes.
--
-- Until the end of the transaction no other transaction claims, settles or updates limits in this schema. At most 1,000 rows of
-- uncounted_enqueue are counted, so that no other transaction waits for long, and of those with
-- events about as many as have 1,000 jobs. `counted` is the snapshot up to which this
-- connection knows everything to be counted: only transactions that were running in it, or began later, are searched.
-- Reads and writes uncounted_enqueue, unswept_addition, lane, queue, tenant and what create_lanes, set_aside_collisions and requeue_late_commits
-- write. Inserts into series_delta and event. Takes the advisory lock of the schema.
-- Returns the snapshot up to which everything is counted now; null if rows are left to count.
create function acquire_claim_lock(counted pg_snapshot) returns pg_snapshot language plpgsql as $$
declare
    snapshot pg_snapshot;
    running_xids xid8[];
    found_count int8;
    row_count int8;
    new_events json;
    additions lane_addition[];
    enqueued json;
    additions_without_lane lane_addition[];
    new_candidates int8[];
    has_collisions boolean;
    has_late_commits boolean;
    has_other_spans boolean;
begin
    perform pg_advisory_xact_lock(1919250544, ('queue'::regclass::oid::int8 & 2147483647)::int4);
    snapshot := pg_current_snapshot();
    if pg_snapshot_xmax(counted) > pg_snapshot_xmax(snapshot) then
        counted := '1:1:';    -- a snapshot of another server, from which this one took over
    end if;
    running_xids := array(select pg_snapshot_xip(counted));
    with found as materialized (
        (select u.ctid as row_location, u.xid, u.events is not null as has_events,
                u.ready + u.scheduled + u.retrying + u.parked as jobs
         from uncounted_enqueue as u where u.xid >= pg_snapshot_xmax(counted) order by u.xid limit 1000)
        union all
        (select u.ctid, u.xid, u.events is not null, u.ready + u.scheduled + u.retrying + u.parked
         from uncounted_enqueue as u where u.xid = any (running_xids) limit 1000)
    ), chosen as (
        select row_location from found where not has_events
        union all
        select t.row_location from (
            select f.row_location, sum(f.jobs) over (order by f.xid rows unbounded preceding) - f.jobs as jobs_before
            from found as f where f.has_events
        ) as t where t.jobs_before < 1000
    ), gone as (
        delete from uncounted_enqueue where ctid = any (array(select row_location from chosen)) returning *
    ), sums as (
        select lane, queue, tenant, task, dependency, "group", priority, sum(ready)::int8 as ready,
               sum(scheduled)::int8 as scheduled, sum(retrying)::int8 as retrying, sum(parked)::int8 as parked,
               (array_agg(lowest_id order by lowest_id))[1] as lowest_id,
               (array_agg(highest_id order by highest_id desc))[1] as highest_id,
               min(first_due_at) as first_due_at, min(min_span) as min_span, max(max_span) as max_span
        from gone group by lane, queue, tenant, task, dependency, "group", priority
    ), minutes as (
        select ready_at(null, lowest_id) / 60000 as minute, queue, task, dependency, tenant,
               sum(ready + scheduled + retrying + parked)::int8 as jobs
        from gone group by 1, queue, task, dependency, tenant
    )
    select (select count(*) from found), (select count(*) from gone),
           (select json_agg(e.event order by gone.xid) from gone cross join json_array_elements(gone.events) as e (event)
            where gone.events is not null),
           array_agg(row(s.lane, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority, s.ready, s.scheduled,
                         s.retrying, s.parked, s.lowest_id, s.highest_id, s.first_due_at, s.min_span, s.max_span)::lane_addition),
           (select json_agg(json_build_array(m.minute, m.queue, m.task, m.dependency, m.tenant, m.jobs)) from minutes as m)
    into found_count, row_count, new_events, additions, enqueued from sums as s;
    if found_count >= 1000 or row_count < found_count then
        snapshot := null;
    end if;
    if additions is null then
        return snapshot;
    end if;
    if new_events is not null then
        insert into event (at, job, version, data)
        select e.at, e.job, e.version, decode(e.data, 'hex')
        from json_to_recordset(new_events) as e (at int8, job uuid, version int8, data text);
    end if;
    insert into series_delta (packed) values (convert_to(enqueued::text, 'UTF8'));

    select array_agg(a) filter (where l.id is null), count(distinct a.lane) < count(*) or
           bool_or((l.queue_name, l.tenant_name, l.task, l.dependency, l."group", l.priority)
                   <> (a.queue, a.tenant, a.task, a.dependency, a."group", a.priority))
    into additions_without_lane, has_collisions from unnest(additions) as a left join lane as l on l.id = a.lane;
    if has_collisions or (additions_without_lane is not null and colliding_lanes(additions_without_lane) <> '{}') then
        additions := set_aside_collisions(additions);
        additions_without_lane := array(
            select a from unnest(additions) as a where not exists (select 1 from lane where lane.id = a.lane)
        );
    end if;
    if additions_without_lane is not null then
        perform create_lanes(additions_without_lane);
    end if;

    update lane as l
    set ready = l.ready + a.ready, scheduled = l.scheduled + a.scheduled, retrying = l.retrying + a.retrying,
        parked = l.parked + a.parked, is_open = l.is_open or (l.blocked_by = 0 and l.ready + a.ready > 0),
        -- Jobs with an SLA were added to `ready`, before others.
        ready_watermark = case when a.ready > 0 and l.priority % 2 = 1 then 0 else l.ready_watermark end,
        -- A lane without ready jobs takes the span of the new ones. A second more or less does not matter.
        deadline_span = case when a.min_span is null or (l.ready > 0 and l.deadline_span is not null) then l.deadline_span
                             else a.min_span + 1000 end,
        expires_at = least(l.expires_at, ready_at(null, a.lowest_id) + a.min_span + 1000)
    from unnest(additions) as a where l.id = a.lane;
    perform count_names(array_agg(a.queue), array_agg(a.task), array_agg(a.dependency), array_agg(a.ready),
                        array_agg(a.scheduled), array_agg(a.retrying), array_agg(a.parked), null, null)
    from unnest(additions) as a;
    perform lower_due_watermarks(array_agg(hash_id('queue', a.queue)), array_agg(a.first_due_at)) from unnest(additions) as a
    where a.first_due_at is not null having count(*) > 0;
    select coalesce(bool_or(a.lowest_id <= l.fresh_watermark), false),
           array_agg(distinct t.id) filter (where not t.is_candidate and t.blocked = 0),
           coalesce(bool_or(a.min_span is not null and (
               a.max_span > l.deadline_span or a.min_span < l.deadline_span - 2000 or a.lowest_id <= l.fresh_watermark
               or ready_at(null, a.lowest_id) <= l.swept_until)), false)
    into has_late_commits, new_candidates, has_other_spans
    from unnest(additions) as a join lane as l on l.id = a.lane join tenant as t on t.id = l.tenant where a.ready > 0;
    if has_late_commits then
        perform requeue_late_commits(additions);
    end if;
    if has_other_spans then
        insert into unswept_addition (lane, lowest_id, highest_id)
        select a.lane, a.lowest_id, a.highest_id from unnest(additions) as a join lane as l on l.id = a.lane
        where a.min_span is not null and (
            a.max_span > l.deadline_span or a.min_span < l.deadline_span - 2000 or a.lowest_id <= l.fresh_watermark
            or ready_at(null, a.lowest_id) <= l.swept_until);
    end if;
    if new_candidates is not null then
        perform add_candidates(new_candidates);
    end if;
    return snapshot;
end
$$;
