-- name: session
select s.id, s.number, s.answers, not s.is_dead,
       (select coalesce(sum(slots), 0)::int8 from session where not is_dead), l.number, l.jobs
from session as s left join lease as l on l.session = s.id where s.name = %(session)s;

-- name: called
with leased as (
    insert into lease (session, number, at, jobs)
    select %(session)s, %(number)s, %(now)s, %(jobs)s::bytea where %(jobs)s::bytea is not null
)
update session set number = %(number)s, answers = %(answers)s where id = %(session)s;

-- name: gate_waits
update gate set back_at = %(back_at)s where id = %(gate)s;

-- name: gate_returns
-- The tenants after the one that returned last, then from the beginning.
with after as (
    select distinct tenant from shelf where aside = %(gate)s and aside <> 0 and tenant > %(cursor)s order by tenant limit %(count)s
), before as (
    select distinct tenant from shelf where aside = %(gate)s and aside <> 0 and tenant <= %(cursor)s
    order by tenant limit greatest(0, %(count)s - (select count(*) from after))
), back as (
    select tenant, 0 as round from after union all select tenant, 1 from before
), returned as (
    update shelf as s set aside = 0, is_open = s.ready > 0
    where s.aside = %(gate)s and s.aside <> 0 and s.tenant in (select tenant from back)
), rung as (
    update tenant as t set ringed = true, finish = greatest(t.finish, (select clock from queue where queue.id = t.queue))
    where t.id in (select tenant from back) and not t.ringed and t.blocked = 0
), left_behind as (
    select exists (
        select 1 from shelf as s where s.aside = %(gate)s and s.aside <> 0 and s.tenant not in (select tenant from back)
    ) as is_left
)
update gate
set cursor = coalesce((select tenant from back order by round desc, tenant desc limit 1), gate.cursor),
    aside = left_behind.is_left, back_at = case when left_behind.is_left then %(now)s end
from left_behind where gate.id = %(gate)s;

-- name: moments
select (
    select min(due) from (
        select min(due) as due from delayed where queue = %(queue)s and wait = 1 and %(pauses)s & 1 = 0
        union all
        select min(due) from delayed where queue = %(queue)s and wait = 2 and %(pauses)s & 2 = 0
        union all
        select min(due) from delayed where queue = %(queue)s and wait = 3
        union all
        select min(due) from delayed where queue = %(queue)s and wait = 4
    ) as first
), (select min(back_at) from gate where back_at is not null), (select min(back_at) from tenant where back_at is not null);

-- name: candidates
with t as materialized (
    select id, permits, max_running, rate_count, rate_window, meter, running, weight, finish, served, load
    from tenant where queue = %(queue)s and ringed and (load, finish, id) > (%(load)s, %(finish)s, %(id)s)
    order by load, finish, id limit %(limit)s
), s as materialized (
    select t.id as tenant, shelf.*
    from t cross join lateral (
        select id, priority, served, ready, task_gate, dependency_gate, group_gate
        from shelf where shelf.tenant = t.id and is_open order by priority, served limit 65
    ) as shelf
)
select
    (select json_build_array(
        q.clock, q.last, q.streak, q.last_at, q.other_at, q.pauses,
        g.id, g.permits, g.max_running, g.rate_count, g.rate_window, g.meter, g.running
    )::text from queue as q join gate as g on g.id = q.gate where q.id = %(queue)s),
    (select json_agg(back)::text from (
        select json_build_array(id, permits, max_running, rate_count, rate_window, meter, running, cursor) as back
        from gate where back_at <= %(now)s order by back_at limit 16
    ) as backs),
    (select json_agg(json_build_array(
        id, permits, max_running, rate_count, rate_window, meter, running, weight, finish, served
    ) order by load, finish, id)::text from t),
    (select json_agg(json_build_array(
        tenant, id, priority, served, ready, task_gate, dependency_gate, group_gate
    ) order by tenant, priority, served)::text from s),
    (select json_agg(json_build_array(
        id, permits, max_running, rate_count, rate_window, meter, running
    ))::text from gate where id = any (array(
        select task_gate from s union select dependency_gate from s union select group_gate from s
    )));

-- name: oldest_shelf
select id, priority, served, ready, task_gate, dependency_gate, group_gate
from shelf where tenant = %(tenant)s and is_open order by served, priority desc limit 1;

-- name: gates
select id, permits, max_running, rate_count, rate_window, meter, running from gate where id = any (%(ids)s::int8[]);

-- name: weights
-- Who waits has an open shelf: the ring also holds tenants that are found to be empty only when it is their turn. Of
-- those in the ring a thousand are enough to tell how small a share is.
select coalesce(sum(weight) filter (where is_waiting), 0.0),
       coalesce(sum(weight) filter (where not is_waiting and running > 0), 0.0)
       + (select coalesce(sum(weight), 0.0) from tenant where queue = %(queue)s and running > 0 and not ringed)
from (
    select ring.weight, ring.running,
           exists (select 1 from shelf where shelf.tenant = ring.id and shelf.is_open) as is_waiting
    from (select id, weight, running from tenant where queue = %(queue)s and ringed limit 1000) as ring
) as crowd;

-- name: take
with picked as materialized (
    select s.id as shelf, j.*
    from unnest(%(shelves)s::int8[], %(counts)s::int8[]) as v (id, count)
    join shelf as s on s.id = v.id
    cross join lateral (
        select * from (
            (select id, version, wait, due, rec, null::tid as place from job
             where state = 3 and shelf = s.id and id > s.low order by id limit v.count)
            union all
            (select job.id, version, wait, due, rec, r.place
             from (select id, ctid as place from ready where ready.shelf = s.id and ready.id >= s.back order by id limit v.count) as r
             join job on job.id = r.id)
        ) as both_kinds order by id limit v.count
    ) as j
), gone as (
    delete from ready where ctid = any (array(select place from picked where place is not null))
)
select shelf, place is not null, id, version, wait, due, rec from picked order by shelf, id;

-- name: carry_out
with shelves as (
    update shelf as s
    set ready = s.ready - v.taken, low = greatest(s.low, v.low), back = greatest(s.back, v.back), is_open = v.is_open,
        aside = v.aside,
        served = coalesce(v.served, s.served)
    from json_to_recordset(%(shelves)s::json)
         as v (id int8, taken int8, low uuid, back uuid, is_open boolean, aside int8, served int8)
    where s.id = v.id
), tenants as (
    update tenant as t
    set running = v.running, load = v.load, finish = v.finish, ringed = v.ringed, blocked = v.blocked,
        back_at = v.back_at, served = v.served, served_at = coalesce(v.served_at, t.served_at), meter = v.meter
    from json_to_recordset(%(tenants)s::json) as v (
        id int8, running int8, load int8, finish int8, ringed boolean, blocked int8, back_at int8, served int8,
        served_at int8, meter text)
    where t.id = v.id
), gates as (
    update gate as g
    set running = v.running, meter = v.meter, aside = g.aside or v.is_aside,
        back_at = case when v.is_aside then v.back_at else g.back_at end
    from json_to_recordset(%(gates)s::json) as v (id int8, running int8, meter text, is_aside boolean, back_at int8)
    where g.id = v.id
)
update queue
set clock = %(clock)s, last = %(last)s, streak = %(streak)s, last_at = %(last_at)s, other_at = %(other_at)s
where id = %(queue)s and %(is_served)s;
