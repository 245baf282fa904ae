-- name: job
select id, state, version, wait, due, lane, record from reprieve_job as job where id = :id;

-- Statements with {beyond} and {direction} read an index forwards or backwards.

-- name: ready
select at, id, lane from reprieve_ready as ready
where lane = :lane and (at, id) {beyond} (:at, :id) order by at {direction}, id {direction} limit :most;

-- name: delayed
select due, id, lane from reprieve_delayed as delayed
where queue = :queue and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: delayed_tenant
select due, id, lane from reprieve_delayed as delayed indexed by reprieve_delayed_tenant
where tenant = :tenant and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: delayed_task
select due, id, lane from reprieve_delayed as delayed indexed by reprieve_delayed_task
where task = :task and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: delayed_dependency
select due, id, lane from reprieve_delayed as delayed indexed by reprieve_delayed_dependency
where dependency = :dependency and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: delayed_code
select due, id, lane from reprieve_delayed as delayed indexed by reprieve_delayed_code
where code = :code and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: delayed_fingerprint
select due, id, lane from reprieve_delayed as delayed indexed by reprieve_delayed_fingerprint
where fingerprint = :fingerprint and wait = :wait and (due, id) {beyond} (:at, :id) and due >= :since and due < :until
order by due {direction}, id {direction} limit :most;

-- name: ended_queue
select at, id, lane from reprieve_ended as ended
where queue = :queue and state = :state and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_all
select at, id, lane from reprieve_ended as ended
where state = :state and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_tenant
select at, id, lane from reprieve_ended as ended indexed by reprieve_ended_tenant
where tenant = :tenant and state = :state and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_task
select at, id, lane from reprieve_ended as ended
where task = :task and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_dependency
select at, id, lane from reprieve_ended as ended
where dependency = :dependency and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_death
select at, id, lane from reprieve_ended as ended
where death = :death and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_code
select at, id, lane from reprieve_ended as ended
where code = :code and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_fingerprint
select at, id, lane from reprieve_ended as ended
where fingerprint = :fingerprint and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: ended_tenant_fingerprint
select at, id, lane from reprieve_ended as ended indexed by reprieve_ended_tenant_fingerprint
where tenant = :tenant and fingerprint = :fingerprint and state = 1 and (at, id) {beyond} (:at, :id) and at >= :since and at < :until
order by at {direction}, id {direction} limit :most;

-- name: end_of
-- The index has no order by id alone: only asked for a job whose record cannot be read.
select at, death from reprieve_ended as ended where queue = :queue and state = :state and id = :id;

-- name: finished
select seq, at, jobs from reprieve_finished as finished
where seq {beyond}= :seq order by seq {direction} limit 1;

-- name: finished_of_queue
select seq, at, jobs from reprieve_finished as finished
where queue = :queue and seq {beyond}= :seq order by seq {direction} limit 1;

-- name: finished_at
select seq, at from reprieve_finished as finished where seq {beyond}= :seq order by seq {direction} limit 1;

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

-- name: all_queues
select id from reprieve_queue as queue;

-- name: lanes
select id, ready > 0 from reprieve_lane as lane where id >= :first and id < :end order by id limit :most;

-- name: lanes_by_queue
select id, ready > 0 from reprieve_lane as lane
where queue = (select id from reprieve_queue where name = :name) and id >= :first and id < :end order by id limit :most;

-- name: lanes_by_tenant
select lane.id, lane.ready > 0
from reprieve_queue as queue
cross join reprieve_tenant as tenant on tenant.queue = queue.id and tenant.name = :name
cross join reprieve_lane as lane on lane.tenant = tenant.id
where lane.id >= :first and lane.id < :end order by lane.id limit :most;

-- name: lanes_by_task
select id, ready > 0 from reprieve_lane as lane
where task_limiter = (select id from reprieve_limiter where subject = 'task' and name = :name and dependency = '') and id >= :first and id < :end
order by id limit :most;

-- name: lanes_by_dependency
select id, ready > 0 from reprieve_lane as lane
where dependency_limiter = (select id from reprieve_limiter where subject = 'dependency' and name = :name and dependency = '')
  and dependency_limiter <> 0 and id >= :first and id < :end
order by id limit :most;

-- name: lanes_by_limiter
select id, has_ready from (
    select * from (select id, ready > 0 as has_ready from reprieve_lane
                   where task_limiter = :name and id >= :first and id < :end order by id limit :most)
    union all
    select * from (select id, ready > 0 from reprieve_lane
                   where dependency_limiter = :name and dependency_limiter <> 0 and id >= :first and id < :end order by id limit :most)
    union all
    select * from (select id, ready > 0 from reprieve_lane
                   where group_limiter = :name and group_limiter <> 0 and id >= :first and id < :end order by id limit :most)
    union all
    select * from (select id, ready > 0 from reprieve_lane
                   where pair_limiter = :name and pair_limiter <> 0 and id >= :first and id < :end order by id limit :most)
) order by id limit :most;

-- name: held
select id from reprieve_limiter as limiter where permits = 0;

-- name: lanes_of_held_pairs
select lane.id from reprieve_limiter as limiter
cross join reprieve_lane as lane on lane.pair_limiter = limiter.id and lane.pair_limiter <> 0
where limiter.subject = 'tenant_dependency' and limiter.permits = 0;

-- name: kept_counts
select name, ready, scheduled, retrying, parked, dead, cancelled from reprieve_name_count as name_count where subject = :subject;

-- name: kept_counts_of
select name, ready, scheduled, retrying, parked, dead, cancelled from reprieve_name_count as name_count
where subject = :subject and name = :name;

-- name: lane_counts
select id, ready, scheduled, retrying, parked, dead, cancelled from reprieve_lane as lane
where id in (select value from json_each(:lanes));

-- name: due
select lane, wait, count(*) from (
    select delayed.lane, delayed.wait
    from reprieve_queue as queue
    cross join (values (1), (2), (3), (4)) as waits
    cross join reprieve_delayed as delayed
        on delayed.queue = queue.id and delayed.wait = waits.column1 and delayed.due <= :now
    limit :most
) group by lane, wait;

-- name: finished_counts
select queue.name, sum(finished.count)
from reprieve_finished as finished join reprieve_queue as queue on queue.id = finished.queue group by queue.name;


-- name: progress
select progress from reprieve_annotation where id = :id;

-- name: result
select value from reprieve_result where id = :id;
