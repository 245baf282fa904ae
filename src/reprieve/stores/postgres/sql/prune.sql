-- name: queues
select distinct queue from finished;

-- name: too_many
select seq, count from finished where queue = %(queue)s order by seq desc;

-- name: finished
delete from finished where queue = %(queue)s and (seq <= %(oldest)s or at < %(since)s) returning count;

-- name: cancelled
with gone as (delete from ended where state = 2 and at < %(before)s returning id),
forgotten as (delete from job using gone where job.id = gone.id)
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
with gone as (delete from event where at < %(before)s returning 1) select count(*) from gone;

-- name: keys
with gone as (delete from uniq where expires <= %(now)s and not exists (select 1 from job where job.id = uniq.id) returning 1) select count(*) from gone;

-- name: results
with gone as (delete from result where expires_at <= %(now)s returning 1) select count(*) from gone;
