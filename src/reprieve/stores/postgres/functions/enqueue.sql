-- Store new jobs. It only inserts, so it can be part of any transaction and blocks no worker while that stays open.
--
-- For each job: its id, its lane, when it is due (null: at the time in its id), its SLA (null: none; an empty array if no job has
-- one), its version, what it waits for, and where its
-- record begins in `records`, which holds all of them one after the other. For each job with a unique key: its position in `ids`,
-- 16 bytes in `keys`, and when the key expires. `lane_names` is a JSON array with the names of each lane and the lowest and the
-- highest id on it; and the least and the most ms until the deadlines of its ready jobs. For each job that is not ready and
-- can expire: when, and its id. `new_events` is a JSON array with the event of each job that tells all: it waits beside the
-- counts, because only who counts them may add to the stream.
-- Reads job and finished. Inserts into job, ready, delayed, expiring and uncounted_enqueue; writes unique_key.
-- Returns for each job the id under which it is known: its own, or that of the job that has its key. Raises serialization_failure
-- if a job is enqueued again while it ends.
create function enqueue(
    ids uuid[], lanes int8[], due_ats int8[], sla_ats int8[], versions int8[], waiting_for int8[], starts int8[], records bytea,
    keyed int8[], keys bytea, key_expires_ats int8[], lane_names json, now int8,
    expiring_ats int8[], expiring_ids uuid[], new_events json
) returns uuid[] language plpgsql set search_path from current
-- The settings of our own connections: in a caller's session, too, no plan may depend on what a table held when it was made.
set enable_seqscan = off set enable_hashjoin = on set jit = off as $$
declare
    known_ids uuid[] := ids;
    stored uuid[] := '{}';
    inserted uuid[];
    lowest uuid;
    highest uuid;
    may_have_finished boolean;
    has_events boolean := json_array_length(new_events) > 0;
begin
    if cardinality(expiring_ids) > 0 then
        insert into expiring (expires_at, id) select * from unnest(expiring_ats, expiring_ids) on conflict do nothing;
    end if;
    if cardinality(ids) = 1 and cardinality(keyed) = 0 then
        perform enqueue_one(ids[1], lanes[1], due_ats[1], sla_ats[1], versions[1], waiting_for[1], records, lane_names, now,
                            case when has_events then new_events end);
        return ids;
    end if;
    select min(l.lowest_id::text collate "C")::uuid, max(l.highest_id::text collate "C")::uuid into lowest, highest
    from json_to_recordset(lane_names) as l (lowest_id uuid, highest_id uuid);
    may_have_finished := exists (select 1 from finished as f where f.highest_id >= lowest and f.lowest_id <= highest);
    if may_have_finished or cardinality(keyed) > 0 then
        stored := array(select job.id from job where job.id = any (ids));
        if may_have_finished then
            stored := stored || finished_ids(ids, lowest, highest);
        end if;
    end if;
    if cardinality(keyed) > 0 then
        known_ids := acquire_keys(ids, stored, keyed, keys, key_expires_ats, now);
    end if;
    with new_job as (
        insert into job (id, lane, due_at, sla_at, version, state, waiting_for, record)
        select v.id, v.lane, v.due_at, v.sla_at, v.version,
               case when coalesce(v.due_at, 0) <= now and v.sla_at is null then 3 else 0 end, v.wait,
               substring(records from v.start::int4 for (v.next_start - v.start)::int4)
        from unnest(ids, known_ids, lanes, due_ats, sla_ats, versions, waiting_for, starts,
                    starts[2:] || (length(records) + 1)::int8)
             as v (id, known_id, lane, due_at, sla_at, version, wait, start, next_start)
        where v.known_id = v.id and v.id <> all (stored)
        on conflict (id) do nothing
        returning job.id, job.lane, job.due_at, job.sla_at, job.waiting_for as wait, coalesce(job.due_at, 0) <= now as is_ready
    ), lane_name as (
        select * from json_to_recordset(lane_names) as l (
            lane int8, queue_id int8, queue text, tenant text, task text, dependency text, "group" text, priority int8,
            lowest_id uuid, highest_id uuid, min_span int8, max_span int8)
    ), new_delayed as (
        insert into delayed (queue, waiting_for, due_at, id, lane, sla_at, tenant, task, dependency)
        select l.queue_id, greatest(j.wait, 1), j.due_at, j.id, j.lane, j.sla_at,
               case when j.wait > 1 then l.tenant end, case when j.wait > 1 then l.task end,
               case when j.wait > 1 then l.dependency end
        from new_job as j join lane_name as l on l.lane = j.lane where not j.is_ready
    ), new_ready as (
        insert into ready (lane, ready_at, id)
        select j.lane, j.sla_at, j.id from new_job as j where j.is_ready and j.sla_at is not null
    ), sums as (
        select lane, count(*) filter (where is_ready) as ready,
               count(*) filter (where not is_ready and wait in (0, 1)) as scheduled,
               count(*) filter (where not is_ready and wait = 2) as retrying,
               count(*) filter (where not is_ready and wait > 2) as parked,
               min(due_at) filter (where not is_ready) as first_due_at
        from new_job group by lane
    ), new_counts as (
        insert into uncounted_enqueue (lane, queue, tenant, task, dependency, "group", priority,
                                       ready, scheduled, retrying, parked, lowest_id, highest_id, first_due_at,
                                       min_span, max_span, events)
        select l.lane, l.queue, l.tenant, l.task, l.dependency, l."group", l.priority,
               v.ready, v.scheduled, v.retrying, v.parked, l.lowest_id, l.highest_id, v.first_due_at,
               l.min_span, l.max_span, case when has_events then (
                   select json_agg(e.event) from json_array_elements(new_events) as e (event)
                   join new_job as j on j.id = (e.event->>'job')::uuid where j.lane = l.lane
               ) end
        from sums as v join lane_name as l on l.lane = v.lane
    )
    select array_agg(id) into inserted from new_job;
    if finished_ids(inserted, lowest, highest) <> '{}' then
        raise exception 'a job was enqueued again while it ended' using errcode = 'serialization_failure';
    end if;
    return known_ids;
end
$$;
