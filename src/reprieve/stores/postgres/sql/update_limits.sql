-- name: make_limiter
-- Lanes name the limiter of a pair before there is one.
insert into limiter (id, subject, name, dependency, permits, max_running, rate_count, rate_window, lanes)
select %(id)s, %(subject)s, %(name)s, %(dependency)s, d.permits, d.max_running, d.rate_count, d.rate_window,
       (select count(*) from lane where pair_limiter = %(id)s and pair_limiter <> 0)
from (select 1) as one left join limit_default as d
    on d.subject = %(subject)s and d.scope = (
        select max(scope) from limit_default where subject = %(subject)s and scope in ('', %(dependency)s))
on conflict (id) do nothing returning id;

-- name: leases
select jobs from lease;

-- name: lanes_of_pairs
select id, pair_limiter from lane where id = any (%(lanes)s::int8[]) and pair_limiter = any (%(pairs)s::int8[]);

-- name: count_running
update limiter set running = %(running)s where id = %(id)s;

-- name: make_pairs
insert into limiter (id, subject, name, dependency, lanes)
select l.pair_limiter, 'tenant_dependency', l.tenant_name, l.dependency, count(*) from lane as l
where l.dependency <> '' and (l.dependency = %(scope)s or %(scope)s = '') group by l.pair_limiter, l.tenant_name, l.dependency
on conflict (id) do nothing returning id;

-- name: defaults
select scope, own, permits, max_running, rate_count, rate_window, pauses from limit_default
where subject = %(subject)s order by scope;

-- name: set_default
insert into limit_default (subject, scope, own, permits, max_running, rate_count, rate_window, pauses)
values (%(subject)s, %(scope)s, %(own)s, %(permits)s, %(max_running)s, %(rate_count)s, %(rate_window)s, %(pauses)s)
on conflict (subject, scope) do update
set own = excluded.own, permits = excluded.permits, max_running = excluded.max_running, rate_count = excluded.rate_count,
    rate_window = excluded.rate_window, pauses = excluded.pauses;

-- name: drop_default
delete from limit_default where subject = %(subject)s and scope = %(scope)s;

-- name: limiter_meters
select id, rate_count, rate_window, meter from limiter
where subject = %(subject)s and own & 4 = 0 and meter <> '[]' and (dependency = %(scope)s or %(scope)s = '' and dependency not in (
    select scope from limit_default where subject = %(subject)s));

-- name: tenant_meters
select id, rate_count, rate_window, meter from tenant
where own & 4 = 0 and meter <> '[]' and queue in (select id from queue where name = %(scope)s or %(scope)s = ''
    and name not in (select scope from limit_default where subject = 'tenant'));

-- name: limiter_meter
update limiter set meter = %(meter)s where id = %(id)s;

-- name: tenant_meter
update tenant set meter = %(meter)s where id = %(id)s;

-- name: limiters_by_default
update limiter
set permits = case when own & 1 = 0 then %(permits)s::int8 else permits end,
    max_running = case when own & 2 = 0 then %(max_running)s::int8 else max_running end,
    rate_count = case when own & 4 = 0 then %(rate_count)s::int8 else rate_count end,
    rate_window = case when own & 4 = 0 then %(rate_window)s::float8 else rate_window end,
    kept_until = case when own & 4 = 0 then case meter when '[]' then 0 else %(kept_until)s::int8 end else kept_until end,
    reopens_at = case when has_blocked_lanes then 0 else reopens_at end
where subject = %(subject)s and own & 7 <> 7 and (dependency = %(scope)s or %(scope)s = '' and dependency not in (
    select scope from limit_default where subject = %(subject)s));

-- name: tenants_by_default
update tenant
set permits = case when own & 1 = 0 then %(permits)s::int8 else permits end,
    max_running = case when own & 2 = 0 then %(max_running)s::int8 else max_running end,
    rate_count = case when own & 4 = 0 then %(rate_count)s::int8 else rate_count end,
    rate_window = case when own & 4 = 0 then %(rate_window)s::float8 else rate_window end,
    kept_until = case when own & 4 = 0 then case meter when '[]' then 0 else %(kept_until)s::int8 end else kept_until end,
    finish = case when blocked > 0 then greatest(finish, (select clock from queue where queue.id = tenant.queue)) else finish end,
    is_candidate = is_candidate or blocked > 0, blocked = 0, reopens_at = null
where own & 7 <> 7 and queue in (select id from queue where name = %(scope)s or %(scope)s = ''
    and name not in (select scope from limit_default where subject = 'tenant'));

-- name: pauses_by_default
update queue set pauses = %(pauses)s
where limiter in (select id from limiter where subject = 'queue' and own & 8 = 0);

-- name: make_queue
insert into queue (id, name, limiter, pauses)
values (%(id)s, %(name)s, %(limiter)s, coalesce((select pauses from limit_default where subject = 'queue'), 0))
on conflict (id) do nothing;

-- name: make_tenant
with new_tenant as (
    insert into tenant (id, queue, name, permits, max_running, rate_count, rate_window)
    select %(id)s, %(queue)s, %(name)s, d.permits, d.max_running, d.rate_count, d.rate_window
    from (select 1) as one left join limit_default as d
        on d.subject = 'tenant' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant' and scope in ('', %(queue_name)s))
    on conflict (id) do nothing returning queue
)
update queue set tenants = tenants + 1 where id = (select queue from new_tenant);

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
    kept_until = case when %(sets_rate)s then %(kept_until)s::int8 else kept_until end,
    own = (own | %(owned)s) & ~%(inherited)s::int8,
    reopens_at = 0
where id = %(id)s;

-- name: tenant
update tenant
set permits = case when %(sets_permits)s then %(permits)s::int8 else permits end,
    max_running = case when %(sets_max_running)s then %(max_running)s::int8 else max_running end,
    rate_count = case when %(sets_rate)s then %(rate_count)s::int8 else rate_count end,
    rate_window = case when %(sets_rate)s then %(rate_window)s::float8 else rate_window end,
    meter = case when %(sets_rate)s then %(meter)s else meter end,
    kept_until = case when %(sets_rate)s then %(kept_until)s::int8 else kept_until end,
    own = (own | %(owned)s) & ~%(inherited)s::int8,
    weight = coalesce(%(weight)s::float8, weight),
    load = trunc(running * 1000000 / coalesce(%(weight)s::float8, weight))::int8,
    blocked = 0, is_candidate = true, reopens_at = null,
    finish = greatest(finish, (select clock from queue where queue.id = tenant.queue))
where id = %(id)s;

-- name: pauses
update queue set pauses = %(pauses)s where id = %(id)s;

-- name: limiter_before
select own, permits, max_running, rate_count, rate_window, 1.0::float8,
       coalesce((select pauses from queue where l.subject = 'queue' and queue.name = l.name), 0)
from limiter as l where subject = %(subject)s and name = %(name)s and dependency = %(dependency)s;

-- name: tenant_before
select own, permits, max_running, rate_count, rate_window, weight, 0 from tenant
where name = %(name)s and queue = (select id from queue where queue.name = %(queue)s);

-- name: default_before
select own, permits, max_running, rate_count, rate_window, 1.0::float8, pauses from limit_default
where subject = %(subject)s and scope = %(scope)s;
