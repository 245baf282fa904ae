-- name: queues
select id from queue;

-- name: tenants
select name from tenant where queue = %(queue)s and name >= %(start)s and name < %(stop)s and name <> '' order by name limit %(limit)s;

-- name: limited
-- Each queue, task, dependency and group of a lane has a limiter.
select name from limiter
where subject = %(subject)s and name >= %(start)s and name < %(stop)s and dependency = '' order by name limit %(limit)s;

-- name: codes
select name from cause
where fate = %(fate)s and kind = 'c' and scope = '' and name >= %(start)s and name < %(stop)s and name <> '' and count > 0
order by name limit %(limit)s;

-- name: uncounted
-- The names of what no claim has counted yet, of so many rows.
select distinct v.name collate "C"
from (select queue, tenant, task, dependency, "group" from uncounted_enqueue limit 5000) as u
cross join lateral (values
    ('queue', u.queue), ('tenant', u.tenant), ('task', u.task), ('dependency', u.dependency), ('group', u."group")
) as v (subject, name)
where v.subject = %(subject)s and v.name collate "C" >= %(start)s and v.name collate "C" < %(stop)s
order by 1 limit %(limit)s;
