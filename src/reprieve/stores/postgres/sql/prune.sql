-- name: too_many
-- Of each queue the two newest rows at which there are too many succeeded jobs, with the jobs in them and the jobs up to them.
select q.id, n.seq, n.kept, n.total from queue as q cross join lateral (
    select * from (
        select seq, kept, (sum(kept) over (order by seq desc))::int8 as total from finished where queue = q.id and kept > 0
        order by seq desc limit %(max_kept)s
    ) as newest where total >= %(max_kept)s order by seq desc limit 2
) as n;

-- name: finished
-- The ids stay for as long as an enqueue may be repeated, so that it stores nothing twice.
with old as (
    select f.seq, f.kept from queue as q
    left join unnest(%(queues)s::int8[], %(oldest)s::int8[]) as v (queue, oldest) on v.queue = q.id
    cross join lateral (
        select seq, kept from finished where queue = q.id and kept > 0 and (seq <= v.oldest or finished_at < %(before)s)
        order by seq limit %(max_rows)s
    ) as f
), emptied as (
    update finished as f set kept = 0, jobs = '\x90' from old where f.seq = old.seq
), gone as (
    delete from finished where seq = any (array(
        select f.seq from queue as q cross join lateral (
            select seq, finished_at from finished where queue = q.id and kept = 0 order by seq limit %(max_rows)s
        ) as f where f.finished_at < %(not_repeatable)s
    ))
)
select coalesce(sum(kept), 0)::int8 from old;

-- name: cancelled
with gone as (
    delete from ended where ctid = any (array(
        select e.ctid from queue as q cross join lateral (
            select ctid from ended where queue = q.id and state = 2 and ended_at < %(before)s order by ended_at limit %(max_rows)s
        ) as e
    )) returning id, lane
), deleted as (
    delete from job using gone where job.id = gone.id
), counted as (
    update lane as l set cancelled = l.cancelled - v.count from (select lane, count(*) from gone group by lane) as v
    where l.id = v.lane returning l.queue_name, l.task, l.dependency, v.count
), named as (
    insert into name_count (subject, name, cancelled)
    select s.subject, s.name, -sum(c.count) from counted as c
    cross join lateral (values ('queue', c.queue_name), ('task', c.task), ('dependency', c.dependency)) as s (subject, name)
    group by s.subject, s.name
    on conflict (subject, name) do update set cancelled = name_count.cancelled + excluded.cancelled
)
select count(*) from gone;

-- name: dead
with gone as (
    delete from job using unnest(%(ids)s::uuid[], %(versions)s::int8[], %(ended_ats)s::int8[]) as v (id, version, ended_at)
    where job.id = v.id and job.state = 1 and job.version = v.version returning job.id, job.lane, v.ended_at
), unlisted as (
    delete from ended as e using gone, lane as l
    where l.id = gone.lane and e.queue = l.queue and e.state = 1 and e.ended_at = gone.ended_at and e.id = gone.id
    returning e.id, e.tenant, e.task, e.dependency, e.death, e.code, e.fingerprint
), counted as (
    update lane as l set dead = l.dead - v.count from (select lane, count(*) from gone group by lane) as v
    where l.id = v.lane returning l.queue_name, l.task, l.dependency, v.count
), named as (
    insert into name_count (subject, name, dead)
    select s.subject, s.name, -sum(c.count) from counted as c
    cross join lateral (values ('queue', c.queue_name), ('task', c.task), ('dependency', c.dependency)) as s (subject, name)
    group by s.subject, s.name
    on conflict (subject, name) do update set dead = name_count.dead + excluded.dead
)
select u.tenant, u.task, u.dependency, u.death, u.code, u.fingerprint from gone left join unlisted as u on u.id = gone.id;

-- name: names
select deleted, has_more from forget_names(now => %(now)s, every => %(every)s, idle_since => %(idle_since)s, max_rows => %(max_rows)s);

-- name: keys
-- A key that an open transaction is taking over is locked, and skipped: then the next prune reads these keys again.
with expired as (
    select u.expires_at, u.key, (select job.id from job where job.id = u.job) is null as is_free from unique_key as u
    where (u.expires_at, u.key) > (%(after)s, %(after_key)s) and u.expires_at <= %(now)s
    order by u.expires_at, u.key limit %(max_rows)s
), gone as (
    delete from unique_key where key = any (array(
        select u.key from unique_key as u
        where u.key = any (array(select key from expired where is_free)) and u.expires_at <= %(now)s
          and (select job.id from job where job.id = u.job) is null
        for update of u skip locked
    )) returning 1
), reached as (
    select expires_at, key from expired
    where (select count(*) from gone) = (select count(*) from expired where is_free)
    order by expires_at desc, key desc limit 1
)
select (select count(*) from gone), (select expires_at from reached), (select key from reached);

-- name: results
with gone as (
    delete from result
    where id = any (array(select id from result where expires_at <= %(now)s order by expires_at limit %(max_rows)s))
    returning 1
)
select count(*) from gone;
