-- name: queues
select name from reprieve_queue as queue;

-- name: limit_states
-- A lane with an odd priority is in the order of SLAs, so its first job is not its oldest; likewise below.
select limiter.name, limiter.dependency, limiter.own,
       (select coalesce(sum(lane.ready), 0) from reprieve_lane as lane where {lanes}),
       (select min((select ready.at from reprieve_ready as ready where ready.lane = lane.id order by ready.at limit 1))
        from reprieve_lane as lane where {lanes} and lane.ready > 0 and lane.priority % 2 = 0),
       limiter.running, limiter.permits, limiter.max_running, limiter.rate_count, limiter.rate_window, coalesce(queue.pauses, 0)
from reprieve_limiter as limiter
left join reprieve_queue as queue on limiter.subject = 'queue' and queue.name = limiter.name
where limiter.subject = :subject and (limiter.name, limiter.dependency) >= (:start, :start_dependency) and limiter.name < :stop
order by limiter.name, limiter.dependency limit :limit;

-- name: tenants
select tenant.name, queue.name, tenant.own,
       (select coalesce(sum(lane.ready), 0) from reprieve_lane as lane where lane.tenant = tenant.id),
       (select min((select ready.at from reprieve_ready as ready where ready.lane = lane.id order by ready.at limit 1))
        from reprieve_lane as lane where lane.tenant = tenant.id and lane.ready > 0 and lane.priority % 2 = 0),
       tenant.running, tenant.permits, tenant.max_running, tenant.rate_count, tenant.rate_window, tenant.weight, tenant.served,
       tenant.served_at, case queue.last_tenant when tenant.id then queue.in_a_row else 0 end,
       max(0, (queue.clock - tenant.finish) / 1000000)
from reprieve_queue as queue join reprieve_tenant as tenant on tenant.queue = queue.id
where queue.name = :queue and tenant.name >= :start and tenant.name < :stop order by tenant.name limit :limit;
