-- Return the lanes of these additions whose queue, tenant or limiter has the id of another one.
-- Reads queue, tenant and limiter.
create function colliding_lanes(additions lane_addition[]) returns int8[] language plpgsql as $$
begin
    return (
        with queues as materialized (
            select n.queue, hash_id('queue', n.queue) as id from (select distinct queue from unnest(additions)) as n
        ), tenants as materialized (
            select n.queue, n.tenant, hash_id('tenant', n.queue, n.tenant) as id
            from (select distinct queue, tenant from unnest(additions)) as n
        ), limiters as materialized (
            select n.subject, n.name, hash_id('limiter', n.subject, n.name) as id from (
                select distinct v.subject, v.name from unnest(additions) as a, lateral (values
                    ('queue', a.queue), ('task', a.task), ('dependency', a.dependency), ('group', a."group")
                ) as v (subject, name)
            ) as n
        ), colliding_limiters as materialized (
            select n.subject, n.name from limiters as n join limiter as stored on stored.id = n.id
            where (stored.subject, stored.name) <> (n.subject, n.name)
        )
        select array(
            select a.lane from unnest(additions) as a
            where a.queue in (
                   select n.queue from queues as n join queue as stored on stored.id = n.id where stored.name <> n.queue
               )
               or (a.queue, a.tenant) in (
                   select n.queue, n.tenant from tenants as n join queues as q on q.queue = n.queue
                   join tenant as stored on stored.id = n.id where (stored.name, stored.queue) <> (n.tenant, q.id)
               )
               or ('queue', a.queue) in (select subject, name from colliding_limiters)
               or ('task', a.task) in (select subject, name from colliding_limiters)
               or ('dependency', a.dependency) in (select subject, name from colliding_limiters)
               or ('group', a."group") in (select subject, name from colliding_limiters)
        )
    );
end
$$;
