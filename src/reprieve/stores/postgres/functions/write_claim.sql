-- Write back what a claim has changed: lanes, tenants and limiters that it has read, the fairness state of the queue (null: no
-- job was taken), and the annotations of jobs that have ended, which are deleted. A null leaves its column as it is.
--
-- Rows are found where the claim has read them (ctid), not by their ids: while an old snapshot is held, an index leads to
-- every version that a hot row ever had.
-- Writes lane, tenant, limiter and queue. Deletes from annotation. Needs the claim lock.
-- Raises serialization_failure if a row was changed since it was read.
create function write_claim(
    lane_locations tid[], lane_taken int8[], lane_fresh_watermarks uuid[], lane_ready_watermarks int8[], lane_is_open boolean[],
    lane_blocked_by int8[], lane_served int8[],
    tenant_locations tid[], tenant_running int8[], tenant_loads int8[], tenant_finishes int8[],
    tenant_is_candidate boolean[], tenant_blocked int8[], tenant_reopens_ats int8[], tenant_served int8[],
    tenant_served_ats int8[], tenant_meters text[],
    limiter_locations tid[], limiter_running int8[], limiter_meters text[], limiter_blocks boolean[],
    limiter_reopens_ats int8[],
    queue_id int8, fairness_state int8[], ended_jobs uuid[]
) returns void language plpgsql as $$
declare
    written int8;
    total int8 := 0;
begin
    update lane as l
    set ready = l.ready - v.taken, fresh_watermark = greatest(l.fresh_watermark, v.fresh_watermark),
        ready_watermark = greatest(l.ready_watermark, v.ready_watermark), is_open = v.is_open, blocked_by = v.blocked_by,
        served = coalesce(v.served, l.served)
    from unnest(lane_locations, lane_taken, lane_fresh_watermarks, lane_ready_watermarks, lane_is_open, lane_blocked_by,
                lane_served)
         as v (row_location, taken, fresh_watermark, ready_watermark, is_open, blocked_by, served)
    where l.ctid = v.row_location;
    get diagnostics written = row_count;
    total := total + written;
    update tenant as t
    set running = v.running, load = v.load, finish = coalesce(v.finish, t.finish),
        is_candidate = coalesce(v.is_candidate, t.is_candidate), blocked = coalesce(v.blocked, t.blocked),
        reopens_at = case when v.is_candidate is null then t.reopens_at else v.reopens_at end,
        served = coalesce(v.served, t.served), served_at = coalesce(v.served_at, t.served_at),
        meter = coalesce(v.meter, t.meter)
    from unnest(tenant_locations, tenant_running, tenant_loads, tenant_finishes, tenant_is_candidate,
                tenant_blocked, tenant_reopens_ats, tenant_served, tenant_served_ats, tenant_meters)
         as v (row_location, running, load, finish, is_candidate, blocked, reopens_at, served, served_at, meter)
    where t.ctid = v.row_location;
    get diagnostics written = row_count;
    total := total + written;
    update limiter as g
    set running = v.running, meter = coalesce(v.meter, g.meter), has_blocked_lanes = g.has_blocked_lanes or v.blocks,
        reopens_at = case when v.blocks then v.reopens_at else g.reopens_at end
    from unnest(limiter_locations, limiter_running, limiter_meters, limiter_blocks, limiter_reopens_ats)
         as v (row_location, running, meter, blocks, reopens_at)
    where g.ctid = v.row_location;
    get diagnostics written = row_count;
    total := total + written;
    if total <> cardinality(lane_locations) + cardinality(tenant_locations) + cardinality(limiter_locations) then
        raise exception 'a row of a claim was changed under the claim lock' using errcode = 'serialization_failure';
    end if;
    if fairness_state is not null then
        update queue as q
        set clock = fairness_state[1], last_tenant = fairness_state[2], in_a_row = fairness_state[3],
            last_served_at = fairness_state[4], other_served_at = fairness_state[5]
        where q.id = queue_id;
    end if;
    if cardinality(ended_jobs) > 0 then
        delete from annotation where annotation.id = any (ended_jobs);
    end if;
end
$$;
