-- name: make_limiter
insert into limiter (id, subject, name, dependency) values (%(id)s, %(subject)s, %(name)s, %(dependency)s)
on conflict (id) do nothing returning id;

-- name: leases
select jobs from lease;

-- name: lanes_of_pair
select id from lane where id = any (%(lanes)s::int8[]) and pair_limiter = %(pair)s;

-- name: count_running
update limiter set running = %(running)s where id = %(id)s;

-- name: make_queue
insert into queue (id, name, limiter) values (%(id)s, %(name)s, %(limiter)s) on conflict (id) do nothing;

-- name: make_tenant
insert into tenant (id, queue, name) values (%(id)s, %(queue)s, %(name)s) on conflict (id) do nothing;

-- name: limiter_rate
select rate_count, rate_window, meter from limiter where id = %(id)s;

-- name: tenant_rate
select rate_count, rate_window, meter from tenant where id = %(id)s;

-- name: limiter
update limiter
set permits = case when %(sets_permits)s then %(permits)s::int8 else permits end,
    max_running = case when %(sets_max_running)s then %(max_running)s::int8 else max_running end,
    rate_count = case when %(sets_rate)s then %(rate_count)s::int8 else rate_count end,
    rate_window = case when %(sets_rate)s then %(rate_window)s::float8 else rate_window end,
    meter = case when %(sets_rate)s then %(meter)s else meter end,
    reopens_at = 0
where id = %(id)s;

-- name: tenant
update tenant
set permits = case when %(sets_permits)s then %(permits)s::int8 else permits end,
    max_running = case when %(sets_max_running)s then %(max_running)s::int8 else max_running end,
    rate_count = case when %(sets_rate)s then %(rate_count)s::int8 else rate_count end,
    rate_window = case when %(sets_rate)s then %(rate_window)s::float8 else rate_window end,
    meter = case when %(sets_rate)s then %(meter)s else meter end,
    weight = coalesce(%(weight)s::float8, weight),
    load = trunc(running * 1000000 / coalesce(%(weight)s::float8, weight))::int8,
    blocked = 0, is_candidate = true, reopens_at = null,
    finish = greatest(finish, (select clock from queue where queue.id = tenant.queue))
where id = %(id)s;

-- name: pauses
update queue set pauses = %(pauses)s where id = %(id)s;

-- name: limit_states
-- Enqueues that were not counted yet may be the first of a queue or task, which has no row then; likewise below.
select g.name, g.dependency, g.running, g.permits, g.max_running, g.rate_count, g.rate_window, coalesce(q.pauses, 0)
from limiter as g left join queue as q on q.limiter = g.id where g.subject = %(subject)s
union all
select distinct l.name, '', 0::int8, null::int8, null::int8, null::int8, null::float8, 0::int8
from (
    select case %(subject)s when 'queue' then queue when 'task' then task when 'dependency' then dependency
           when 'group' then "group" else '' end as name
    from uncounted_enqueue
) as l
where l.name <> '' and not exists (select 1 from limiter where limiter.id = hash_id('limiter', %(subject)s, l.name))
order by 1, 2;

-- name: tenants
select t.name, q.name, t.running, t.permits, t.max_running, t.rate_count, t.rate_window, t.weight, t.served, t.served_at,
       case q.last_tenant when t.id then q.in_a_row else 0 end, greatest(0, (q.clock - t.finish) / 1000000)
from tenant as t join queue as q on q.id = t.queue where q.name = %(queue)s or %(queue)s = ''
union all
select distinct l.tenant, l.queue, 0::int8, null::int8, null::int8, null::int8, null::float8, 1::float8, 0::int8, null::int8,
       0::int8, 0::int8
from uncounted_enqueue as l
where (l.queue = %(queue)s or %(queue)s = '')
  and not exists (select 1 from tenant where tenant.id = hash_id('tenant', l.queue, l.tenant))
order by 2, 1;
