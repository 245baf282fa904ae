-- Delete names without jobs: those of the next `max_rows` lanes that have none, and the tenants, limiters and queues that nothing
-- names any more. A search reads all lanes, some with each call, and begins `every` milliseconds after the last one began.
-- docs/decisions/0031-forgetting-names.md has the rules.
--
-- A lane whose jobs are not committed yet is deleted as well: their transaction has written its names to uncounted_enqueue, and
-- the claim that counts them creates the lane anew. Its fresh watermark is the lowest then, which is right: no fresh job of the
-- lane was ever taken and still exists, or the lane would have had a lease.
-- Reads lease and finished. Writes name_search, lane, tenant, limiter and queue. Needs the claim lock, and everything that was
-- committed before to be counted.
-- Returns how many names were deleted, and whether more are left to check.
create function forget_names(now int8, every int8, idle_since int8, max_rows int8, out deleted int8, out has_more boolean)
language plpgsql as $$
declare
    search name_search;
    last_lane int8;
    empty_lanes int8[];
    row_count int8;
begin
    deleted := 0;
    has_more := false;
    select * into search from name_search where id = 1;
    if search.reached is null and coalesce(abs(now - search.checked_at) >= every, true) then
        search := (1, now, -9223372036854775808);
    end if;
    if search.reached is not null then
        select max(l.id), count(*) into last_lane, row_count
        from (select lane.id from lane where lane.id > search.reached order by lane.id limit max_rows) as l;
        empty_lanes := array(
            select l.id from lane as l
            where l.id > search.reached and l.id <= last_lane and l.ready = 0 and l.scheduled = 0 and l.retrying = 0
              and l.parked = 0 and l.dead = 0 and l.cancelled = 0
        );
        -- A lane may have jobs that run unless its tenant or one of its limiters has none; then the leases tell.
        if (
            select l.id from lane as l
            where l.id = any (empty_lanes) and (select t.running from tenant as t where t.id = l.tenant) > 0 and (
                select g.id from limiter as g
                where g.id = any (array[l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter]) and g.running = 0 limit 1
            ) is null
            limit 1
        ) is not null then
            empty_lanes := array(
                select e from unnest(empty_lanes) as e where int8send(e) not in (
                    select substring(l.jobs from start for 8) from lease as l, generate_series(17, length(l.jobs), 32) as start
                )
            );
        end if;
        with gone as (
            delete from lane as l where l.id = any (empty_lanes)
              and (select h.lane from hash_collision as h where h.lane = l.id limit 1) is null
            returning l.tenant, l.task_limiter, l.dependency_limiter, l.group_limiter, l.pair_limiter
        ), tenants as (
            update tenant as t set lanes = t.lanes - v.count, kept_until = meter_end(t.rate_window, t.meter, now)
            from (select g.tenant, count(*) from gone as g group by g.tenant) as v where t.id = v.tenant
        ), limiters as (
            update limiter as g set lanes = g.lanes - v.count, kept_until = meter_end(g.rate_window, g.meter, now)
            from (
                select n.id, count(*)
                from gone, unnest(array[task_limiter, dependency_limiter, group_limiter, pair_limiter]) as n (id) group by n.id
            ) as v where g.id = v.id
        )
        select count(*) into deleted from gone;
        insert into name_search as s (id, checked_at, reached)
        values (1, search.checked_at, case when row_count = max_rows then last_lane end)
        on conflict (id) do update set checked_at = excluded.checked_at, reached = excluded.reached;
        has_more := row_count = max_rows;
    end if;

    delete from name_count where (subject, name) in (
        select c.subject, c.name from name_count as c
        where c.ready = 0 and c.scheduled = 0 and c.retrying = 0 and c.parked = 0 and c.dead = 0 and c.cancelled = 0
        limit max_rows
    );

    with gone as (
        delete from tenant where id = any (array(
            select t.id from tenant as t
            where t.lanes = 0 and t.own = 0 and t.weight = 1 and t.kept_until <= now and t.running = 0 and (
                coalesce(t.served_at, 0) <= idle_since or t.finish <= (select q.clock from queue as q where q.id = t.queue)
            )
            limit max_rows
        )) returning queue
    ), queues as (
        update queue as q set tenants = q.tenants - v.count
        from (select g.queue, count(*) from gone as g group by g.queue) as v where q.id = v.queue
    )
    select count(*) into row_count from gone;
    deleted := deleted + row_count;
    has_more := has_more or row_count = max_rows;

    delete from limiter where id = any (array(
        select g.id from limiter as g
        where g.lanes = 0 and g.own = 0 and g.subject <> 'queue' and g.kept_until <= now and g.running = 0
        limit max_rows
    ));
    get diagnostics row_count = row_count;
    deleted := deleted + row_count;
    has_more := has_more or row_count = max_rows;

    with gone as (
        delete from queue where id = any (array(
            select q.id from queue as q join limiter as g on g.id = q.limiter
            where q.tenants = 0 and q.last_served_at <= idle_since and g.own = 0
              and meter_end(g.rate_window, g.meter, q.last_served_at) <= now
              and (select f.seq from finished as f where f.queue = q.id and f.kept > 0 limit 1) is null
              and (select f.seq from finished as f where f.queue = q.id and f.kept = 0 limit 1) is null
            limit max_rows
        )) returning limiter
    ), limiters as (
        delete from limiter where id in (select g.limiter from gone as g)
    )
    select count(*) into row_count from gone;
    deleted := deleted + row_count;
    has_more := has_more or row_count = max_rows;
end
$$;
