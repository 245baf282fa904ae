-- name: too_many
-- Of each queue the newest rows alone, since whatever lies behind them may be long: those with which there is one too many
-- or more.
select q.id, n.seq, n.count, n.kept from queue as q cross join lateral (
    select * from (
        select seq, count, (sum(count) over (order by seq desc))::int8 as kept from finished where queue = q.id and count > 0
        order by seq desc limit %(most)s
    ) as newest where kept >= %(most)s order by seq desc limit 2
) as n;

-- name: finished
-- Ids stay for as long as an enqueue may be repeated, so that it stores nothing twice.
with old as (
    select f.seq, f.count from queue as q
    left join unnest(%(queues)s::int8[], %(oldest)s::int8[]) as v (queue, oldest) on v.queue = q.id
    cross join lateral (
        select seq, count from finished where queue = q.id and count > 0 and (seq <= v.oldest or at < %(before)s)
        order by seq limit %(most)s
    ) as f
), emptied as (
    update finished as f set count = 0, jobs = '\x90' from old where f.seq = old.seq
), gone as (
    delete from finished where seq = any (array(
        select f.seq from queue as q cross join lateral (
            select seq, at from finished where queue = q.id and count = 0 order by seq limit %(most)s
        ) as f where f.at < %(repeated)s
    ))
)
select coalesce(sum(count), 0)::int8 from old;

-- name: cancelled
with gone as (
    delete from ended where ctid = any (array(
        select e.ctid from queue as q cross join lateral (
            select ctid from ended where queue = q.id and state = 2 and at < %(before)s order by at limit %(most)s
        ) as e
    )) returning id
), forgotten as (
    delete from job using gone where job.id = gone.id
)
select count(*) from gone;

-- name: dead
with gone as (
    delete from job using unnest(%(ids)s::uuid[], %(versions)s::int8[], %(ats)s::int8[]) as v (id, version, at)
    where job.id = v.id and job.state = 1 and job.version = v.version returning job.id, job.lane, v.at
), listed as (
    delete from ended as e using gone, lane as s
    where s.id = gone.lane and e.queue = s.queue and e.state = 1 and e.at = gone.at and e.id = gone.id
), counted as (
    update lane as s set dead = s.dead - v.count from (select lane, count(*) from gone group by lane) as v where s.id = v.lane
)
select count(*) from gone;

-- name: events
with gone as (
    delete from event where seq = any (array(select seq from event where at < %(before)s order by at limit %(most)s))
    returning 1
)
select count(*) from gone;

-- name: day
select forget_day(%(before)s);

-- name: days
select prepare_days(%(now)s, 3);

-- name: keys
-- A key that somebody's open transaction has taken over is theirs.
with gone as (
    delete from uniq where key = any (array(
        select key from uniq
        where expires <= %(now)s and not exists (select 1 from job where job.id = uniq.id)
        order by expires limit %(most)s for update of uniq skip locked
    )) returning 1
)
select count(*) from gone;

-- name: results
with gone as (
    delete from result
    where id = any (array(select id from result where expires_at <= %(now)s order by expires_at limit %(most)s))
    returning 1
)
select count(*) from gone;
