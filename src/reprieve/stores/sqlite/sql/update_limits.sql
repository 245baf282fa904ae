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
    reopens_at = 0
where id = :id;

-- name: tenant
update reprieve_tenant as tenant
set permits = case when :sets_permits then :permits else permits end,
    max_running = case when :sets_max_running then :max_running else max_running end,
    rate_count = case when :sets_rate then :rate_count else rate_count end,
    rate_window = case when :sets_rate then :rate_window else rate_window end,
    meter = case when :sets_rate then :meter else meter end,
    weight = coalesce(:weight, weight),
    load = cast(running * 1000000 / coalesce(:weight, weight) as integer),
    blocked = 0, is_candidate = 1, reopens_at = null,
    finish = max(finish, (select clock from reprieve_queue as queue where id = tenant.queue))
where id = :id;

-- name: pauses
update reprieve_queue as queue set pauses = :pauses where id = :id;

-- name: lanes_without_pair
select lane.id from reprieve_lane as lane join reprieve_tenant as tenant on tenant.id = lane.tenant
join reprieve_limiter as limiter
    on limiter.subject = 'tenant_dependency' and limiter.name = tenant.name and limiter.dependency = lane.dependency
where lane.dependency <> '' and lane.pair_limiter = 0;

-- name: name_pairs
update reprieve_lane as lane set pair_limiter = limiter.id
from reprieve_tenant as tenant, reprieve_limiter as limiter
where lane.dependency <> '' and lane.pair_limiter = 0 and tenant.id = lane.tenant
  and limiter.subject = 'tenant_dependency' and limiter.name = tenant.name and limiter.dependency = lane.dependency;

-- name: leases
select jobs from reprieve_lease as lease;

-- name: count_pair
update reprieve_limiter as limiter set running = running + ?
where id = (select pair_limiter from reprieve_lane as lane where lane.id = ?);

-- name: limit_states
select limiter.name, limiter.dependency, limiter.running, limiter.permits, limiter.max_running, limiter.rate_count, limiter.rate_window,
       coalesce(queue.pauses, 0)
from reprieve_limiter as limiter left join reprieve_queue as queue on queue.limiter = limiter.id
where limiter.subject = :subject order by limiter.name, limiter.dependency;

-- name: tenants
select tenant.name, queue.name, tenant.running, tenant.permits, tenant.max_running, tenant.rate_count,
       tenant.rate_window, tenant.weight, tenant.served, tenant.served_at,
       case queue.last_tenant when tenant.id then queue.in_a_row else 0 end, max(0, (queue.clock - tenant.finish) / 1000000)
from reprieve_tenant as tenant join reprieve_queue as queue on queue.id = tenant.queue
where queue.name = :queue or :queue = '' order by queue.name, tenant.name;
