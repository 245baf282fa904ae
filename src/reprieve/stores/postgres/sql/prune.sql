-- name: queues
select id from queue where exists (select 1 from finished where finished.queue = queue.id);

-- name: too_many
-- The newest rows alone, since whatever lies behind them may be long: those with which there is one too many or more.
select seq, count, kept from (
    select seq, count, (sum(count) over (order by seq desc))::int8 as kept from finished where queue = %(queue)s
    order by seq desc limit %(most)s
) as newest where kept >= %(most)s order by seq desc limit 2;

-- name: finished
with gone as (
    delete from finished where seq = any (array(
        select seq from finished where queue = %(queue)s and (seq <= %(oldest)s or at < %(before)s)
        order by seq limit %(most)s
    )) returning count
)
select coalesce(sum(count), 0)::int8 from gone;

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
    delete from job where id = %(id)s and state = 1 and version = %(version)s returning id, shelf
), listed as (
    delete from ended as e using gone, shelf as s
    where s.id = gone.shelf and e.queue = s.queue and e.state = 1 and e.at = %(at)s and e.id = gone.id
)
update shelf as s set dead = s.dead - 1 from gone where s.id = gone.shelf returning 1;

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
