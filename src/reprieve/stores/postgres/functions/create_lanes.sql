-- Create the queues, tenants, limiters and lanes that these additions name, where they are missing, with the defaults of their
-- limits. Tenants and limiters count the lanes that name them, and queues their tenants: what nothing names is deleted
-- (forget_names.sql).
-- Reads limit_default and lane. Writes limiter, queue, tenant and lane. Needs the claim lock.
create function create_lanes(additions lane_addition[]) returns void language plpgsql as $$
begin
    -- Not `not exists`, of which the server may make a hash of all lanes.
    additions := array(select a from unnest(additions) as a where (select lane.id from lane where lane.id = a.lane) is null);

    insert into limiter (id, subject, name, permits, max_running, rate_count, rate_window, lanes)
    select hash_id('limiter', v.subject, v.name), v.subject, v.name, d.permits, d.max_running, d.rate_count, d.rate_window, v.lanes
    from (
        select v.subject, v.name, sum(v.lanes) as lanes from unnest(additions) as a, lateral (values
            ('queue', a.queue, 0), ('task', a.task, 1), ('dependency', a.dependency, 1), ('group', a."group", 1)
        ) as v (subject, name, lanes) where v.name <> '' group by v.subject, v.name
    ) as v left join limit_default as d on d.subject = v.subject and d.scope = ''
    on conflict (id) do update set lanes = limiter.lanes + excluded.lanes where excluded.lanes > 0;

    -- A tenant and a dependency together have a limiter only if they have limits: here those of a default.
    insert into limiter (id, subject, name, dependency, permits, max_running, rate_count, rate_window)
    select distinct hash_id('limiter', 'tenant_dependency', a.tenant, a.dependency), 'tenant_dependency', a.tenant, a.dependency,
           d.permits, d.max_running, d.rate_count, d.rate_window
    from unnest(additions) as a join limit_default as d
        on d.subject = 'tenant_dependency' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant_dependency' and scope in ('', a.dependency))
    where a.dependency <> ''
    on conflict (id) do nothing;

    update limiter as g set lanes = g.lanes + v.count
    from (
        select hash_id('limiter', 'tenant_dependency', a.tenant, a.dependency) as id, count(*)
        from unnest(additions) as a where a.dependency <> '' group by a.tenant, a.dependency
    ) as v where g.id = v.id;

    insert into queue (id, name, limiter, pauses)
    select distinct hash_id('queue', a.queue), a.queue, hash_id('limiter', 'queue', a.queue),
           coalesce((select d.pauses from limit_default as d where d.subject = 'queue'), 0)
    from unnest(additions) as a
    on conflict (id) do nothing;

    with written as (
        insert into tenant (id, queue, name, permits, max_running, rate_count, rate_window, lanes)
        select hash_id('tenant', v.queue, v.tenant), hash_id('queue', v.queue), v.tenant,
               d.permits, d.max_running, d.rate_count, d.rate_window, v.lanes
        from (select a.queue, a.tenant, count(*) as lanes from unnest(additions) as a group by a.queue, a.tenant) as v
        left join limit_default as d on d.subject = 'tenant' and d.scope = (
            select max(scope) from limit_default where subject = 'tenant' and scope in ('', v.queue))
        on conflict (id) do update set lanes = tenant.lanes + excluded.lanes
        returning tenant.queue, tenant.xmax = 0 as is_new
    )
    update queue as q set tenants = q.tenants + v.count
    from (select w.queue, count(*) from written as w where w.is_new group by w.queue) as v where q.id = v.queue;

    insert into lane (id, queue, tenant, queue_name, tenant_name, task, dependency, "group", priority,
                      task_limiter, dependency_limiter, group_limiter, pair_limiter)
    select a.lane, hash_id('queue', a.queue), hash_id('tenant', a.queue, a.tenant), a.queue, a.tenant,
           a.task, a.dependency, a."group", a.priority, hash_id('limiter', 'task', a.task),
           case a.dependency when '' then 0 else hash_id('limiter', 'dependency', a.dependency) end,
           case a."group" when '' then 0 else hash_id('limiter', 'group', a."group") end,
           case a.dependency when '' then 0 else hash_id('limiter', 'tenant_dependency', a.tenant, a.dependency) end
    from unnest(additions) as a;
end
$$;
