-- name: jobs
select id, state, version, wait, due, shelf,
       case when :shelves is null or shelf in (select value from json_each(:shelves)) then rec end
from job where id > :after order by id limit :most;

-- name: job
select id, state, version, wait, due, shelf, rec from job where id = ?;

-- name: ended
select queue, state, at, id from ended
where (queue, state, at, id) > (:queue, :state, :at, :id)
  and (:wanted is null or queue = :wanted) and (:death = '' or death = :death) and (:code = '' or code = :code)
  and (:fingerprint = '' or fingerprint = :fingerprint)
order by queue, state, at, id limit 100;

-- name: finished
select seq, jobs from finished where seq >= ? order by seq limit 1;

-- name: leases
select lease.id >> 32, session.name, lease.at, lease.jobs
from lease join session on session.id = lease.id >> 32;

-- name: marks
select id, cancel from mark where cancel = 1;

-- name: shelves
select shelf.id from shelf join queue on queue.id = shelf.queue join tenant on tenant.id = shelf.tenant
where (:queue = '' or queue.name = :queue) and (:tenant is null or tenant.name = :tenant)
  and (:task = '' or shelf.task = :task) and (:dependency is null or shelf.dependency = :dependency);

-- name: held
select shelf.id from shelf
where exists (select 1 from gate where gate.permits = 0
    and gate.id in (shelf.task_gate, shelf.dependency_gate, shelf.group_gate));

-- name: counts
select id, ready, scheduled, retrying, parked, dead from shelf;

-- name: due
select shelf, wait, count(*) from delayed where due <= ? group by shelf, wait;

-- name: cancelled
select shelf, count(*) from ended where state = 2 group by shelf;

-- name: all_finished
select jobs from finished;

-- name: events
select event.seq, event.data from event where seq > ? order by seq limit ?;

-- name: events_of
select event.seq, event.data from event where job = ? and seq > ? order by seq limit ?;
