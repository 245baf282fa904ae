-- name: queues
select id from reprieve_queue as queue;

-- name: tenants
select name from reprieve_tenant as tenant
where queue = :queue and name >= :start and name < :stop and name <> '' order by name limit :limit;

-- name: limited
-- Each queue, task, dependency and group of a lane has a limiter.
select name from reprieve_limiter as limiter
where subject = :subject and name >= :start and name < :stop and dependency = '' order by name limit :limit;

-- name: codes
select name from reprieve_cause as cause
where fate = :fate and kind = 'c' and scope = '' and name >= :start and name < :stop and name <> '' and count > 0
order by name limit :limit;
