-- Take the first ready jobs off lanes, `counts` of each, in the order in which they became ready: fresh jobs after its fresh
-- watermark, and rows of `ready` from its ready watermark on.
-- Reads job. Deletes from ready. Needs the claim lock.
-- Returns the jobs as rows, waiting and no longer fresh, lane by lane in that order; `ready_at` is null for a job that was
-- fresh, and tells which watermark a job moves.
create function take_jobs(lanes int8[], counts int8[], fresh_watermarks uuid[], ready_watermarks int8[]) returns table (
    id uuid, state int2, version int4, waiting_for int2, due_at int8, lane int8, record bytea, ready_at int8
) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with picked as materialized (
        select v.lane, j.*
        from unnest(lanes, counts, fresh_watermarks, ready_watermarks) as v (lane, count, fresh_watermark, ready_watermark)
        cross join lateral (
            select * from (
                (select job.id, job.version, job.waiting_for, job.due_at, job.record, null::int8 as ready_at,
                        null::tid as row_location
                 from job
                 where job.state = 3 and job.lane = v.lane and job.id > v.fresh_watermark order by job.id limit v.count)
                union all
                (select job.id, job.version, job.waiting_for, job.due_at, job.record, r.ready_at, r.row_location
                 from (
                     select ready.id, ready.ready_at, ready.ctid as row_location from ready
                     where ready.lane = v.lane and ready.ready_at >= v.ready_watermark
                     order by ready.ready_at, ready.id limit v.count
                 ) as r join job on job.id = r.id)
            ) as both_kinds
            order by coalesce(both_kinds.ready_at, ready_at(null, both_kinds.id)), both_kinds.id limit v.count
        ) as j
    ), gone as (
        delete from ready
        where ready.ctid = any (array(select picked.row_location from picked where picked.row_location is not null))
    )
    select p.id, 0::int2, p.version, p.waiting_for, p.due_at, p.lane, p.record, p.ready_at
    from picked as p order by p.lane, coalesce(p.ready_at, ready_at(null, p.id)), p.id;
end
$$;
