-- name: limiter_rate
select rate_count, rate_window, meter from reprieve_limiter as limiter where id = :id;

-- name: tenant_rate
select rate_count, rate_window, meter from reprieve_tenant as tenant where id = :id;

-- name: limiter
update reprieve_limiter as limiter
set permits = case when :sets_permits then :permits else permits end,
    max_running = case when :sets_max_running then :max_running else max_running end,
    rate_count = case when :sets_rate then :rate_count else rate_count end,
    rate_window = case when :sets_rate then :rate_window else rate_window end,
    meter = case when :sets_rate then :meter else meter end,
    kept_until = case when :sets_rate then :kept_until else kept_until end,
    own = (own | :owned) & ~:inherited,
    reopens_at = 0
where id = :id;

-- name: tenant
update reprieve_tenant as tenant
set permits = case when :sets_permits then :permits else permits end,
    max_running = case when :sets_max_running then :max_running else max_running end,
    rate_count = case when :sets_rate then :rate_count else rate_count end,
    rate_window = case when :sets_rate then :rate_window else rate_window end,
    meter = case when :sets_rate then :meter else meter end,
    kept_until = case when :sets_rate then :kept_until else kept_until end,
    own = (own | :owned) & ~:inherited,
    weight = coalesce(:weight, weight),
    load = cast(running * 1000000 / coalesce(:weight, weight) as integer),
    blocked = 0, is_candidate = 1, reopens_at = null,
    finish = max(finish, (select clock from reprieve_queue as queue where id = tenant.queue))
where id = :id;

-- name: pauses
update reprieve_queue as queue set pauses = :pauses where id = :id;

-- name: defaults
select scope, own, permits, max_running, rate_count, rate_window, pauses from reprieve_limit_default as limit_default
where subject = :subject order by scope;

-- name: set_default
insert into reprieve_limit_default (subject, scope, own, permits, max_running, rate_count, rate_window, pauses)
values (:subject, :scope, :own, :permits, :max_running, :rate_count, :rate_window, :pauses)
on conflict (subject, scope) do update
set own = excluded.own, permits = excluded.permits, max_running = excluded.max_running, rate_count = excluded.rate_count,
    rate_window = excluded.rate_window, pauses = excluded.pauses;

-- name: drop_default
delete from reprieve_limit_default as limit_default where subject = :subject and scope = :scope;

-- name: limiter_meters
select id, rate_count, rate_window, meter from reprieve_limiter as limiter
where subject = :subject and own & 4 = 0 and meter <> '[]' and (dependency = :scope or :scope = '' and dependency not in (
    select scope from reprieve_limit_default where subject = :subject));

-- name: tenant_meters
select id, rate_count, rate_window, meter from reprieve_tenant as tenant
where own & 4 = 0 and meter <> '[]' and queue in (select id from reprieve_queue as queue where name = :scope or :scope = ''
    and name not in (select scope from reprieve_limit_default where subject = 'tenant'));

-- name: limiter_meter
update reprieve_limiter as limiter set meter = :meter where id = :id;

-- name: tenant_meter
update reprieve_tenant as tenant set meter = :meter where id = :id;

-- name: limiters_by_default
update reprieve_limiter as limiter
set permits = case when own & 1 then permits else :permits end,
    max_running = case when own & 2 then max_running else :max_running end,
    rate_count = case when own & 4 then rate_count else :rate_count end,
    rate_window = case when own & 4 then rate_window else :rate_window end,
    kept_until = case when own & 4 = 0 then case meter when '[]' then 0 else :kept_until end else kept_until end,
    reopens_at = case when blocked_lanes > 0 then 0 else reopens_at end
where subject = :subject and own & 7 <> 7 and (dependency = :scope or :scope = '' and dependency not in (
    select scope from reprieve_limit_default where subject = :subject));

-- name: tenants_by_default
update reprieve_tenant as tenant
set permits = case when own & 1 then permits else :permits end,
    max_running = case when own & 2 then max_running else :max_running end,
    rate_count = case when own & 4 then rate_count else :rate_count end,
    rate_window = case when own & 4 then rate_window else :rate_window end,
    kept_until = case when own & 4 = 0 then case meter when '[]' then 0 else :kept_until end else kept_until end,
    finish = case when blocked > 0 then max(finish, (select clock from reprieve_queue as queue where id = tenant.queue)) else finish end,
    is_candidate = max(is_candidate, blocked > 0), blocked = 0, reopens_at = null
where own & 7 <> 7 and queue in (select id from reprieve_queue as queue where name = :scope or :scope = ''
    and name not in (select scope from reprieve_limit_default where subject = 'tenant'));

-- name: pauses_by_default
update reprieve_queue as queue set pauses = :pauses
where limiter in (select id from reprieve_limiter as limiter where subject = 'queue' and own & 8 = 0);

-- name: make_pairs
insert into reprieve_limiter (subject, name, dependency)
select distinct 'tenant_dependency', tenant.name, lane.dependency
from reprieve_lane as lane join reprieve_tenant as tenant on tenant.id = lane.tenant
where lane.dependency <> '' and lane.pair_limiter = 0 and (lane.dependency = :scope or :scope = '')
on conflict do nothing;

-- name: lanes_without_pair
-- The lanes of one pair. Queues are named only so that the index of tenants, which begins with them, is used.
select lane.id from reprieve_queue as queue cross join reprieve_tenant as tenant cross join reprieve_lane as lane
where tenant.queue = queue.id and tenant.name = :tenant and lane.tenant = tenant.id and lane.dependency = :dependency
  and lane.pair_limiter = 0;

-- name: lanes_without_pairs
select lane.id from reprieve_lane as lane
where lane.dependency <> '' and lane.pair_limiter = 0 and (lane.dependency = :scope or :scope = '');

-- name: name_pairs
update reprieve_lane as lane set pair_limiter = limiter.id
from reprieve_tenant as tenant, reprieve_limiter as limiter
where lane.id in (select value from json_each(?)) and tenant.id = lane.tenant
  and limiter.subject = 'tenant_dependency' and limiter.name = tenant.name and limiter.dependency = lane.dependency;

-- name: count_lanes_of_pairs
update reprieve_limiter as limiter set lanes = (
    select count(*) from reprieve_lane as lane where lane.pair_limiter = limiter.id and lane.pair_limiter <> 0
) where id in (select pair_limiter from reprieve_lane as lane where lane.id in (select value from json_each(?)));

-- name: leases
select jobs from reprieve_lease as lease;

-- name: count_pair
update reprieve_limiter as limiter set running = running + ?
where id = (select pair_limiter from reprieve_lane as lane where lane.id = ?);

-- name: limiter_before
select own, permits, max_running, rate_count, rate_window, 1.0, coalesce((
    select pauses from reprieve_queue as queue where subject = 'queue' and queue.name = limiter.name), 0)
from reprieve_limiter as limiter where subject = :subject and name = :name and dependency = :dependency;

-- name: tenant_before
select own, permits, max_running, rate_count, rate_window, weight, 0 from reprieve_tenant as tenant
where name = :name and queue = (select id from reprieve_queue as queue where queue.name = :queue);

-- name: default_before
select own, permits, max_running, rate_count, rate_window, 1.0, pauses from reprieve_limit_default as limit_default
where subject = :subject and scope = :scope;
