-- Store one new job without a key, which is what most calls do, in as few and as small statements as possible.
-- Reads finished. Inserts into job, uncounted_enqueue, delayed and ready; a job whose id is stored already changes nothing.
create function enqueue_one(
    new_id uuid, lane_id int8, due_at int8, sla_at int8, with_version int8, waiting_for int8, new_record bytea, lane_names json, now int8,
    new_events json
) returns void language plpgsql as $$
#variable_conflict use_variable
declare
    is_ready boolean := coalesce(due_at, 0) <= now;
begin
    insert into job (id, lane, due_at, sla_at, version, state, waiting_for, record)
    values (new_id, lane_id, due_at, sla_at, with_version, case when is_ready and sla_at is null then 3 else 0 end, waiting_for,
            new_record)
    on conflict (id) do nothing;
    if not found then
        return;
    end if;
    if exists (select 1 from finished as f where f.highest_id >= new_id and f.lowest_id <= new_id and new_id = any (f.ids)) then
        delete from job where job.id = new_id;
        return;
    end if;
    insert into uncounted_enqueue (lane, queue, tenant, task, dependency, "group", priority,
                                   ready, scheduled, retrying, parked, lowest_id, highest_id, first_due_at,
                                   min_span, max_span, events)
    select lane_id, l.queue, l.tenant, l.task, l.dependency, l."group", l.priority, is_ready::int4,
           (not is_ready and waiting_for in (0, 1))::int4, (not is_ready and waiting_for = 2)::int4,
           (not is_ready and waiting_for > 2)::int4, new_id, new_id, case when not is_ready then due_at end,
           l.min_span, l.max_span, new_events
    from json_to_recordset(lane_names) as l (
        queue text, tenant text, task text, dependency text, "group" text, priority int8, min_span int8, max_span int8);
    if not is_ready then
        insert into delayed (queue, waiting_for, due_at, id, lane, sla_at, tenant, task, dependency)
        values ((lane_names->0->>'queue_id')::int8, greatest(waiting_for, 1), due_at, new_id, lane_id, sla_at,
                case when waiting_for > 1 then lane_names->0->>'tenant' end, case when waiting_for > 1 then lane_names->0->>'task' end,
                case when waiting_for > 1 then lane_names->0->>'dependency' end);
    elsif sla_at is not null then
        insert into ready (lane, ready_at, id) values (lane_id, sla_at, new_id);
    end if;
end
$$;
