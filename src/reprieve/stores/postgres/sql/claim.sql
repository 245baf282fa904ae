-- name: session
-- A row for each lease of the session that may hold jobs; one row without a lease if there is none.
select s.id, s.last_claim, s.last_results, not s.is_dead as is_alive,
       (select coalesce(json_agg(json_build_array(queues, slots, prefetch)), '[]')::text from (
           select queues, sum(slots) as slots, sum(prefetch) as prefetch from session where not is_dead group by queues
       ) as offer) as offers,
       exists (select 1 from annotation where cancel is not null) as has_cancel_requests,
       l.claim as lease_claim, l.jobs as lease_jobs
from session as s left join lease as l on l.session = s.id and l.claim >= s.first_lease where s.name = %(session)s;

-- name: record_claim
with gone as (
    delete from lease as l using unnest(%(empty_lease_sessions)s::int8[], %(empty_lease_claims)s::int8[]) as v (session, claim)
    where l.session = v.session and l.claim = v.claim
), leased as (
    insert into lease (session, claim, leased_at, jobs)
    select %(session)s, %(claim)s, %(now)s, %(jobs)s::bytea where %(jobs)s::bytea is not null
)
update session set last_claim = %(claim)s, last_results = %(results)s, first_lease = %(first_lease)s where id = %(session)s;

-- name: candidates
select candidates(
    queue_id => %(queue)s, max_tenants => %(max_tenants)s, max_lanes => %(max_lanes)s, after_load => %(load)s,
    after_finish => %(finish)s, after_name => %(name)s, now => %(now)s, released_tenants => %(released_tenants)s::int8[],
    released_limiters => %(released_limiters)s::int8[], checks_crowd => %(checks_crowd)s
);

-- name: weights
-- In whole thousandths. A tenant that waits has an open lane: some candidates turn out to have none.
select coalesce(sum(weight) filter (where is_waiting), 0)::int8,
       (coalesce(sum(weight) filter (where not is_waiting and running > 0), 0)
        + (select coalesce(sum(floor(weight * 1000 + 0.5)), 0) from tenant where queue = %(queue)s and is_busy))::int8
from (
    select floor(candidate.weight * 1000 + 0.5) as weight, candidate.running,
           exists (select 1 from lane where lane.tenant = candidate.id and lane.is_open) as is_waiting
    from (select id, weight, running from tenant where queue = %(queue)s and is_candidate limit %(max_tenants)s) as candidate
) as weighed;

-- name: count_candidates
select (select count(*) from tenant
        where queue = %(queue)s and is_candidate and not is_in_crowd
          and (load, finish, name) > (%(load)s, %(finish)s, %(name)s))
     + (select count(*) from tenant
        where queue = %(queue)s and is_candidate and is_in_crowd
          and (crowd_load, crowd_finish, name) > (%(load)s, %(finish)s, %(name)s));

-- name: candidate_at
select load, finish, name from (
    (select load, finish, name from tenant
     where queue = %(queue)s and is_candidate and not is_in_crowd
       and (load, finish, name) > (%(load)s, %(finish)s, %(name)s))
    union all
    (select crowd_load, crowd_finish, name from tenant
     where queue = %(queue)s and is_candidate and is_in_crowd
       and (crowd_load, crowd_finish, name) > (%(load)s, %(finish)s, %(name)s)
     order by crowd_load, crowd_finish, name limit %(index)s + 1)
) as candidate order by load, finish, name limit 1 offset %(index)s;

-- name: count_open_lanes
select t.id, (select count(*) from lane where lane.tenant = t.id and lane.is_open)
from unnest(%(tenants)s::int8[]) as t (id);

-- name: lanes_among
-- Of some open lanes of each tenant, those whose task is not excluded, with their limiters. Arrays as in candidates.sql.
with found as materialized (
    select f.* from unnest(%(tenants)s::int8[], %(skips)s::int8[]) as t (id, skip) cross join lateral (
        select * from (
            select lane.ctid as row_location, lane.* from lane where lane.tenant = t.id and lane.is_open
            order by lane.priority, lane.served limit %(size)s offset t.skip
        ) as part where part.task_limiter not in (select unnest(%(excluded)s::int8[])) limit %(max_lanes)s
    ) as f
)
select json_build_object(
    'lanes', coalesce((
        select json_agg(json_build_array(
            l.id, l.priority, l.served, l.ready, json_build_array(l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter),
            l.tenant, l.fresh_watermark, l.ready_watermark, l.row_location, false))
        from found as l
    ), '[]'),
    'limiters', coalesce((
        select json_agg(json_build_array(
            g.id, g.permits, g.max_running, g.rate_count, g.rate_window, g.meter, g.running, g.last_returned_tenant, false, g.ctid))
        from limiter as g where g.id = any (array(
            select unnest(array[l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter]) from found as l))
    ), '[]')
)::text;

-- name: lane_locations
select id, ctid from lane where id = any (%(lanes)s::int8[]);

-- name: keep_blocked
update limiter set reopens_at = %(reopens_at)s where id = %(limiter)s;

-- name: open_blocked_lanes
-- The lanes of the tenants after the one that returned last, then from the first tenant on.
with after as (
    select distinct tenant from lane
    where blocked_by = %(limiter)s and blocked_by <> 0 and tenant > %(last_returned_tenant)s
    order by tenant limit %(max_tenants)s
), before as (
    select distinct tenant from lane
    where blocked_by = %(limiter)s and blocked_by <> 0 and tenant <= %(last_returned_tenant)s
    order by tenant limit greatest(0, %(max_tenants)s - (select count(*) from after))
), returning_tenant as (
    select tenant, 0 as round from after union all select tenant, 1 from before
), opened as (
    update lane as l set blocked_by = 0, is_open = l.ready > 0
    where l.blocked_by = %(limiter)s and l.blocked_by <> 0 and l.tenant in (select tenant from returning_tenant)
), new_candidate as (
    update tenant as t
    set is_candidate = true, finish = greatest(t.finish, (select clock from queue where queue.id = t.queue))
    where t.id in (select tenant from returning_tenant) and not t.is_candidate and t.blocked = 0
), rest as (
    select exists (
        select 1 from lane as l
        where l.blocked_by = %(limiter)s and l.blocked_by <> 0 and l.tenant not in (select tenant from returning_tenant)
    ) as is_blocked
)
update limiter
set last_returned_tenant = coalesce(
        (select tenant from returning_tenant order by round desc, tenant desc limit 1), limiter.last_returned_tenant),
    has_blocked_lanes = rest.is_blocked, reopens_at = case when rest.is_blocked then 0 end
from rest where limiter.id = %(limiter)s;

-- name: next_times
select first_due_at(%(queue)s), (select min(reopens_at) from limiter where reopens_at is not null),
       (select min(reopens_at) from tenant where reopens_at is not null);

-- name: take_jobs
select id, state, version, waiting_for, due_at, lane, record, ready_at from take_jobs(
    lanes => %(lanes)s::int8[], counts => %(counts)s::int8[], fresh_watermarks => %(fresh_watermarks)s::uuid[],
    ready_watermarks => %(ready_watermarks)s::int8[]
);

-- name: write_claim
select write_claim(
    lane_locations => %(lane_locations)s::tid[], lane_taken => %(lane_taken)s::int8[],
    lane_fresh_watermarks => %(lane_fresh_watermarks)s::uuid[], lane_ready_watermarks => %(lane_ready_watermarks)s::int8[],
    lane_is_open => %(lane_is_open)s::boolean[], lane_blocked_by => %(lane_blocked_by)s::int8[],
    lane_served => %(lane_served)s::int8[],
    tenant_locations => %(tenant_locations)s::tid[], tenant_running => %(tenant_running)s::int8[],
    tenant_loads => %(tenant_loads)s::int8[], tenant_finishes => %(tenant_finishes)s::int8[],
    tenant_is_candidate => %(tenant_is_candidate)s::boolean[], tenant_blocked => %(tenant_blocked)s::int8[],
    tenant_reopens_ats => %(tenant_reopens_ats)s::int8[], tenant_served => %(tenant_served)s::int8[],
    tenant_served_ats => %(tenant_served_ats)s::int8[], tenant_meters => %(tenant_meters)s::text[],
    limiter_locations => %(limiter_locations)s::tid[], limiter_running => %(limiter_running)s::int8[],
    limiter_blocks => %(limiter_blocks)s::boolean[], limiter_reopens_ats => %(limiter_reopens_ats)s::int8[],
    limiter_meters => %(limiter_meters)s::text[],
    queue_id => %(queue_id)s, fairness_state => %(fairness_state)s::int8[], ended_jobs => %(ended_jobs)s::uuid[]
);
