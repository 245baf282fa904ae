-- Create the queues, tenants, limiters and lanes that these additions name, where they are missing.
-- Reads limit_default. Writes limiter, queue, tenant and lane. Needs the claim lock.
create function create_lanes(additions lane_addition[]) returns void language plpgsql as $$
begin
    insert into limiter (id, subject, name, permits, max_running, rate_count, rate_window)
    select hash_id('limiter', v.subject, v.name), v.subject, v.name, d.permits, d.max_running, d.rate_count, d.rate_window
    from (
        select distinct v.subject, v.name from unnest(additions) as a, lateral (values
            ('queue', a.queue), ('task', a.task), ('dependency', a.dependency), ('group', a."group")
        ) as v (subject, name) where v.name <> ''
    ) as v left join limit_default as d on d.subject = v.subject and d.scope = ''
    on conflict (id) do nothing;

    -- A tenant and a dependency together have a limiter only if they have limits: here those of a default.
    insert into limiter (id, subject, name, dependency, permits, max_running, rate_count, rate_window)
    select distinct hash_id('limiter', 'tenant_dependency', a.tenant, a.dependency), 'tenant_dependency', a.tenant, a.dependency,
           d.permits, d.max_running, d.rate_count, d.rate_window
    from unnest(additions) as a join limit_default as d
        on d.subject = 'tenant_dependency' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant_dependency' and scope in ('', a.dependency))
    where a.dependency <> ''
    on conflict (id) do nothing;

    insert into queue (id, name, limiter, pauses)
    select distinct hash_id('queue', a.queue), a.queue, hash_id('limiter', 'queue', a.queue),
           coalesce((select d.pauses from limit_default as d where d.subject = 'queue'), 0)
    from unnest(additions) as a
    on conflict (id) do nothing;

    insert into tenant (id, queue, name, permits, max_running, rate_count, rate_window)
    select distinct hash_id('tenant', a.queue, a.tenant), hash_id('queue', a.queue), a.tenant, d.permits, d.max_running, d.rate_count, d.rate_window
    from unnest(additions) as a left join limit_default as d
        on d.subject = 'tenant' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant' and scope in ('', a.queue))
    on conflict (id) do nothing;

    insert into lane (id, queue, tenant, queue_name, tenant_name, task, dependency, "group", priority,
                      task_limiter, dependency_limiter, group_limiter, pair_limiter)
    select a.lane, hash_id('queue', a.queue), hash_id('tenant', a.queue, a.tenant), a.queue, a.tenant,
           a.task, a.dependency, a."group", a.priority, hash_id('limiter', 'task', a.task),
           case a.dependency when '' then 0 else hash_id('limiter', 'dependency', a.dependency) end,
           case a."group" when '' then 0 else hash_id('limiter', 'group', a."group") end,
           case a.dependency when '' then 0 else hash_id('limiter', 'tenant_dependency', a.tenant, a.dependency) end
    from unnest(additions) as a
    on conflict (id) do nothing;
end
$$;
