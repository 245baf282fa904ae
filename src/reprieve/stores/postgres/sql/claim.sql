-- name: session
select s.id, s.number, s.answers, not s.is_dead,
       (select coalesce(sum(slots), 0)::int8 from session where not is_dead),
       exists (select 1 from annotation where cancel is not null), l.number, l.jobs
from session as s left join lease as l on l.session = s.id and l.number >= s.first where s.name = %(session)s;

-- name: called
with gone as (
    delete from lease as l using unnest(%(sessions)s::int8[], %(numbers)s::int8[]) as v (session, number)
    where l.session = v.session and l.number = v.number
), leased as (
    insert into lease (session, number, at, jobs)
    select %(session)s, %(number)s, %(now)s, %(jobs)s::bytea where %(jobs)s::bytea is not null
)
update session set number = %(number)s, answers = %(answers)s, first = %(first)s where id = %(session)s;

-- name: limiter_waits
update limiter set back_at = %(back_at)s where id = %(limiter)s;

-- name: limiter_returns
-- The tenants after the one that returned last, then from the beginning.
with after as (
    select distinct tenant from lane where aside = %(limiter)s and aside <> 0 and tenant > %(cursor)s order by tenant limit %(count)s
), before as (
    select distinct tenant from lane where aside = %(limiter)s and aside <> 0 and tenant <= %(cursor)s
    order by tenant limit greatest(0, %(count)s - (select count(*) from after))
), back as (
    select tenant, 0 as round from after union all select tenant, 1 from before
), returned as (
    update lane as s set aside = 0, is_open = s.ready > 0
    where s.aside = %(limiter)s and s.aside <> 0 and s.tenant in (select tenant from back)
), rung as (
    update tenant as t set ringed = true, finish = greatest(t.finish, (select clock from queue where queue.id = t.queue))
    where t.id in (select tenant from back) and not t.ringed and t.blocked = 0
), left_behind as (
    select exists (
        select 1 from lane as s where s.aside = %(limiter)s and s.aside <> 0 and s.tenant not in (select tenant from back)
    ) as is_left
)
update limiter
set cursor = coalesce((select tenant from back order by round desc, tenant desc limit 1), limiter.cursor),
    aside = left_behind.is_left, back_at = case when left_behind.is_left then 0 end
from left_behind where limiter.id = %(limiter)s;

-- name: moments
select first_due(%(queue)s), (select min(back_at) from limiter where back_at is not null),
       (select min(back_at) from tenant where back_at is not null);

-- name: candidates
select * from candidates(
    %(queue)s, %(most)s, %(load)s, %(finish)s, %(name)s, %(now)s, %(freed)s::int8[], %(freed_limiters)s::int8[],
    %(is_counting)s
);

-- name: oldest_lanes
select distinct on (priority)
       id, priority, served, ready, task_limiter, dependency_limiter, group_limiter, ctid, low, back
from lane where tenant = %(tenant)s and is_open order by priority, served;

-- name: lane_places
select id, ctid from lane where id = any (%(lanes)s::int8[]);

-- name: limiters
select id, permits, max_running, rate_count, running, rate_window, meter, ctid from limiter where id = any (%(ids)s::int8[]);

-- name: weights
-- In whole thousandths. A tenant that waits has an open lane: some candidates turn out to have none.
select coalesce(sum(weight) filter (where is_waiting), 0)::int8,
       (coalesce(sum(weight) filter (where not is_waiting and running > 0), 0)
       + (select coalesce(sum(floor(weight * 1000 + 0.5)), 0) from tenant where queue = %(queue)s and is_busy))::int8
from (
    select floor(candidate.weight * 1000 + 0.5) as weight, candidate.running,
           exists (select 1 from lane where lane.tenant = candidate.id and lane.is_open) as is_waiting
    from (select id, weight, running from tenant where queue = %(queue)s and ringed limit %(limit)s) as candidate
) as weighed;

-- name: take
select * from take(%(lanes)s::int8[], %(counts)s::int8[], %(lows)s::uuid[], %(backs)s::uuid[]);

-- name: carry_out
select carry_out(
    %(lanes)s::tid[], %(taken)s::int8[], %(lows)s::uuid[], %(backs)s::uuid[], %(open)s::boolean[], %(asides)s::int8[],
    %(turns)s::int8[], %(tenants)s::tid[], %(running)s::int8[], %(loads)s::int8[], %(finishes)s::int8[],
    %(ringed)s::boolean[], %(blocked)s::int8[], %(back_ats)s::int8[], %(served)s::int8[], %(served_ats)s::int8[],
    %(meters)s::text[], %(limiters)s::tid[], %(limiter_running)s::int8[], %(limiter_meters)s::text[], %(limiter_asides)s::boolean[],
    %(limiter_back_ats)s::int8[], %(queue)s, %(turn)s::int8[], %(ended)s::uuid[]
);
