-- Create the queues, tenants, limiters and lanes that these additions name, where they are missing.
-- Writes limiter, queue, tenant and lane. Needs the claim lock.
create function create_lanes(additions lane_addition[]) returns void language plpgsql as $$
begin
    insert into limiter (id, subject, name)
    select hash_id('limiter', v.subject, v.name), v.subject, v.name
    from unnest(additions) as a, lateral (values
        ('queue', a.queue), ('task', a.task), ('dependency', a.dependency), ('group', a."group")
    ) as v (subject, name)
    where v.name <> '' group by v.subject, v.name
    on conflict (id) do nothing;

    insert into queue (id, name, limiter)
    select distinct hash_id('queue', a.queue), a.queue, hash_id('limiter', 'queue', a.queue) from unnest(additions) as a
    on conflict (id) do nothing;

    insert into tenant (id, queue, name)
    select distinct hash_id('tenant', a.queue, a.tenant), hash_id('queue', a.queue), a.tenant from unnest(additions) as a
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
