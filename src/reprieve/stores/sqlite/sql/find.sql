-- name: jobs
select id, state, version, wait, due, lane,
       case when :lanes is null or lane in (select value from json_each(:lanes)) then record end
from reprieve_job as job where id > :after order by id limit :most;

-- name: jobs_newest
select id, state, version, wait, due, lane,
       case when :lanes is null or lane in (select value from json_each(:lanes)) then record end
from reprieve_job as job where id < :after order by id desc limit :most;

-- name: job
select id, state, version, wait, due, lane, record from reprieve_job as job where id = :id;

-- name: ended
select queue, state, at, id from reprieve_ended as ended
where (queue, state, at, id) > (:queue, :state, :at, :id)
  and (:wanted is null or queue = :wanted) and (:death = '' or death = :death)
  and (not :is_dead or state = 1) and (not :is_cancelled or state = 2) and (:code = '' or code = :code)
  and (:fingerprint = '' or fingerprint = :fingerprint)
order by queue, state, at, id limit 100;

-- name: ended_newest
select queue, state, at, id from reprieve_ended as ended
where (queue, state, at, id) < (:queue, :state, :at, :id)
  and (:wanted is null or queue = :wanted) and (:death = '' or death = :death)
  and (not :is_dead or state = 1) and (not :is_cancelled or state = 2) and (:code = '' or code = :code)
  and (:fingerprint = '' or fingerprint = :fingerprint)
order by queue desc, state desc, at desc, id desc limit 100;

-- name: end_of
-- The index has no order by id alone: only asked for a job whose record cannot be read.
select at, death from reprieve_ended as ended where queue = :queue and state = :state and id = :id;

-- name: finished
select seq, jobs from reprieve_finished as finished where seq >= :seq order by seq limit 1;

-- name: finished_before
select seq from reprieve_finished as finished where at < :since order by seq desc limit 1;

-- name: finished_newest
select seq, jobs from reprieve_finished as finished where seq <= :seq order by seq desc limit 1;

-- name: leases
select session.name, lease.at, lease.jobs
from reprieve_lease as lease join reprieve_session as session on session.id = lease.id >> 32;

-- name: leases_of_session
select session.name, lease.at, lease.jobs
from reprieve_session as session join reprieve_lease as lease
    on lease.id between session.id << 32 and session.id << 32 | 4294967295
where session.name = :session;

-- name: leases_of_job
select session.name, lease.at, lease.jobs
from reprieve_lease as lease join reprieve_session as session on session.id = lease.id >> 32
where instr(lease.jobs, :packed);

-- name: lanes
select lane.id from reprieve_lane as lane join reprieve_queue as queue on queue.id = lane.queue join reprieve_tenant as tenant on tenant.id = lane.tenant
where (:queue = '' or queue.name = :queue) and (:tenant is null or tenant.name = :tenant)
  and (:task = '' or lane.task = :task) and (:dependency is null or lane.dependency = :dependency);

-- name: held
select id from reprieve_limiter as limiter where permits = 0;

-- name: lanes_of_held_pairs
select lane.id from reprieve_limiter as limiter join reprieve_tenant as tenant on tenant.name = limiter.name
join reprieve_lane as lane on lane.tenant = tenant.id and lane.pair_limiter = limiter.id
where limiter.subject = 'tenant_dependency' and limiter.permits = 0;

-- name: counts
select id, ready, scheduled, retrying, parked, dead, cancelled from reprieve_lane as lane;

-- name: due
select delayed.lane, delayed.wait, count(*)
from reprieve_queue as queue
cross join (values (1), (2), (3), (4)) as waits
cross join reprieve_delayed as delayed
    on delayed.queue = queue.id and delayed.wait = waits.column1 and delayed.due <= :now
group by delayed.lane, delayed.wait;

-- name: finished_counts
select queue.name, sum(finished.count)
from reprieve_finished as finished join reprieve_queue as queue on queue.id = finished.queue
where :queue = '' or queue.name = :queue group by queue.name;

-- name: all_finished
select jobs from reprieve_finished as finished;

-- name: events
select event.seq, event.data from reprieve_event as event where seq > :after order by seq limit :limit;

-- name: events_of
select event.seq, event.data from reprieve_event as event where job = :job and seq > :after order by seq limit :limit;

-- name: progress
select progress from reprieve_annotation where id = :id;

-- name: result
select value from reprieve_result where id = :id;
