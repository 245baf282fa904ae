-- name: queues
-- Enqueues that were not counted yet may be the first of a queue, tenant or task, which has no row then; likewise below.
select name from queue union select queue from uncounted_enqueue;

-- name: limit_states
-- A lane with an odd priority is in the order of SLAs, so its first job is not its oldest; likewise below.
with uncounted as materialized (
    select u.name, u.dependency, sum(u.ready)::int8 as ready, min(case when u.ready > 0 then u.oldest_at end) as oldest_at
    from (
        select (case %(subject)s when 'queue' then queue when 'task' then task when 'dependency' then dependency
                when 'group' then "group" else tenant end) collate "C" as name,
               (case %(subject)s when 'tenant_dependency' then dependency else '' end) collate "C" as dependency,
               ready, case when mod(priority, 2) = 0 then ready_at(null, lowest_id) end as oldest_at
        from uncounted_enqueue
    ) as u
    where (u.name, u.dependency) >= (%(start)s, %(start_dependency)s) and u.name < %(stop)s group by u.name, u.dependency
), stored as (
    select limiter.name, limiter.dependency, limiter.own,
           (select coalesce(sum(lane.ready), 0)::int8 from lane where {lanes}) as ready,
           (select min(least(
               (select ready_at(null, job.id) from job
                where job.state = 3 and job.lane = lane.id and job.id > lane.fresh_watermark order by job.id limit 1),
               (select ready.ready_at from ready
                where ready.lane = lane.id and ready.ready_at >= lane.ready_watermark order by ready.ready_at limit 1)))
            from lane where {lanes} and lane.ready > 0 and mod(lane.priority, 2) = 0) as oldest_at,
           limiter.running, limiter.permits, limiter.max_running, limiter.rate_count, limiter.rate_window,
           coalesce(queue.pauses, 0) as pauses
    from limiter left join queue on %(subject)s = 'queue' and queue.limiter = limiter.id
    where limiter.subject = %(subject)s and (limiter.name, limiter.dependency) >= (%(start)s, %(start_dependency)s)
      and limiter.name < %(stop)s
    order by limiter.name, limiter.dependency limit %(limit)s
), missing as (
    select u.name, u.dependency, 0::int8, 0::int8, null::int8, 0::int8, d.permits, d.max_running, d.rate_count, d.rate_window,
           coalesce(d.pauses, 0)
    from uncounted as u left join limit_default as d on d.subject = %(subject)s and d.scope = ''
    where u.name <> '' and %(subject)s <> 'tenant_dependency'
      and not exists (select 1 from limiter where limiter.id = hash_id('limiter', %(subject)s, u.name))
)
select s.name, s.dependency, s.own, s.ready + coalesce(u.ready, 0), least(s.oldest_at, u.oldest_at), s.running, s.permits,
       s.max_running, s.rate_count, s.rate_window, s.pauses
from (select * from stored union all select * from missing) as s
left join uncounted as u on u.name = s.name and u.dependency = s.dependency
order by s.name, s.dependency limit %(limit)s;

-- name: tenants
with uncounted as materialized (
    select tenant collate "C" as name, sum(ready)::int8 as ready,
           min(case when ready > 0 and mod(priority, 2) = 0 then ready_at(null, lowest_id) end) as oldest_at
    from uncounted_enqueue
    where queue = %(queue)s and tenant collate "C" >= %(start)s and tenant collate "C" < %(stop)s group by tenant
), stored as (
    select t.name, q.name as queue, t.own,
           (select coalesce(sum(lane.ready), 0)::int8 from lane where lane.tenant = t.id) as ready,
           (select min(least(
               (select ready_at(null, job.id) from job
                where job.state = 3 and job.lane = lane.id and job.id > lane.fresh_watermark order by job.id limit 1),
               (select ready.ready_at from ready
                where ready.lane = lane.id and ready.ready_at >= lane.ready_watermark order by ready.ready_at limit 1)))
            from lane where lane.tenant = t.id and lane.ready > 0 and mod(lane.priority, 2) = 0) as oldest_at,
           t.running, t.permits, t.max_running, t.rate_count, t.rate_window, t.weight, t.served, t.served_at,
           case q.last_tenant when t.id then q.in_a_row else 0 end as streak,
           greatest(0, (q.clock - t.finish) / 1000000) as rounds
    from queue as q join tenant as t on t.queue = q.id
    where q.name = %(queue)s and t.name >= %(start)s and t.name < %(stop)s order by t.name limit %(limit)s
), missing as (
    select u.name, %(queue)s::text, 0::int8, 0::int8, null::int8, 0::int8, d.permits, d.max_running, d.rate_count, d.rate_window,
           1::float8, 0::int8, null::int8, 0::int8, 0::int8
    from uncounted as u left join limit_default as d
        on d.subject = 'tenant' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant' and scope in ('', %(queue)s))
    where not exists (select 1 from tenant where tenant.id = hash_id('tenant', %(queue)s, u.name))
)
select s.name, s.queue, s.own, s.ready + coalesce(u.ready, 0), least(s.oldest_at, u.oldest_at), s.running, s.permits,
       s.max_running, s.rate_count, s.rate_window, s.weight, s.served, s.served_at, s.streak, s.rounds
from (select * from stored union all select * from missing) as s left join uncounted as u on u.name = s.name
order by s.name limit %(limit)s;
