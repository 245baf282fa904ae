-- Add what was added to the counters of lanes to those of their queues, tasks and dependencies.
-- Writes name_count. Needs the claim lock.
create function count_names(
    queues text[], tasks text[], dependencies text[],
    ready int8[], scheduled int8[], retrying int8[], parked int8[], dead int8[], cancelled int8[]
) returns void language sql as $$
    insert into name_count (subject, name, ready, scheduled, retrying, parked, dead, cancelled)
    select s.subject, s.name, coalesce(sum(v.ready), 0), coalesce(sum(v.scheduled), 0), coalesce(sum(v.retrying), 0),
           coalesce(sum(v.parked), 0), coalesce(sum(v.dead), 0), coalesce(sum(v.cancelled), 0)
    from unnest(queues, tasks, dependencies, ready, scheduled, retrying, parked, dead, cancelled)
         as v (queue, task, dependency, ready, scheduled, retrying, parked, dead, cancelled)
    cross join lateral (values ('queue', v.queue), ('task', v.task), ('dependency', v.dependency)) as s (subject, name)
    group by s.subject, s.name
    on conflict (subject, name) do update
    set ready = name_count.ready + excluded.ready, scheduled = name_count.scheduled + excluded.scheduled,
        retrying = name_count.retrying + excluded.retrying, parked = name_count.parked + excluded.parked,
        dead = name_count.dead + excluded.dead, cancelled = name_count.cancelled + excluded.cancelled
$$;
