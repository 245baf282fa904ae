-- Create the queues, tenants, limiters and lanes that these additions name, where they are missing. Tenants and limiters count
-- the lanes that name them, and queues their tenants: what nothing names is deleted (forget_names.sql).
-- Reads lane. Writes limiter, queue, tenant and lane. Needs the claim lock.
create function create_lanes(additions lane_addition[]) returns void language plpgsql as $$
begin
    -- Not `not exists`, of which the server may make a hash of all lanes.
    additions := array(select a from unnest(additions) as a where (select lane.id from lane where lane.id = a.lane) is null);

    insert into limiter (id, subject, name)
    select distinct hash_id('limiter', 'queue', a.queue), 'queue', a.queue from unnest(additions) as a
    on conflict (id) do nothing;

    insert into limiter (id, subject, name, lanes)
    select hash_id('limiter', v.subject, v.name), v.subject, v.name, count(*)
    from unnest(additions) as a, lateral (values
        ('task', a.task), ('dependency', a.dependency), ('group', a."group")
    ) as v (subject, name)
    where v.name <> '' group by v.subject, v.name
    on conflict (id) do update set lanes = limiter.lanes + excluded.lanes;

    insert into queue (id, name, limiter)
    select distinct hash_id('queue', a.queue), a.queue, hash_id('limiter', 'queue', a.queue) from unnest(additions) as a
    on conflict (id) do nothing;

    with written as (
        insert into tenant (id, queue, name, lanes)
        select hash_id('tenant', a.queue, a.tenant), hash_id('queue', a.queue), a.tenant, count(*)
        from unnest(additions) as a group by a.queue, a.tenant
        on conflict (id) do update set lanes = tenant.lanes + excluded.lanes
        returning tenant.queue, tenant.xmax = 0 as is_new
    )
    update queue as q set tenants = q.tenants + v.count
    from (select w.queue, count(*) from written as w where w.is_new group by w.queue) as v where q.id = v.queue;

    insert into lane (id, queue, tenant, queue_name, tenant_name, task, dependency, "group", priority,
                      task_limiter, dependency_limiter, group_limiter)
    select a.lane, hash_id('queue', a.queue), hash_id('tenant', a.queue, a.tenant), a.queue, a.tenant,
           a.task, a.dependency, a."group", a.priority, hash_id('limiter', 'task', a.task),
           case a.dependency when '' then 0 else hash_id('limiter', 'dependency', a.dependency) end,
           case a."group" when '' then 0 else hash_id('limiter', 'group', a."group") end
    from unnest(additions) as a;
end
$$;
