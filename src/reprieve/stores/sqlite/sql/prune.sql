-- name: queues_with_finished
select id from reprieve_queue as queue
where exists (select 1 from reprieve_finished as finished where finished.queue = queue.id);

-- name: newest_finished
select seq, count from reprieve_finished as finished where queue = ? order by seq desc;

-- name: finished
delete from reprieve_finished as finished where seq in (
    select seq from reprieve_finished as old where queue = :queue and (seq <= :oldest or at < :before)
    order by seq limit :max_rows
) returning count;

-- name: all_queues
select id from reprieve_queue;

-- name: cancelled
delete from reprieve_ended where (queue, state, at, id) in (
    select queue, state, at, id from reprieve_ended as old where queue = :queue and state = 2 and at < :before
    order by at limit :max_rows
) returning id, lane;

-- name: uncount_cancelled
update reprieve_lane as lane set cancelled = cancelled - v.column2 from (values {values}) as v where lane.id = v.column1;

-- name: dead
select job.lane, lane.queue from reprieve_job as job join reprieve_lane as lane on lane.id = job.lane
where job.id = ? and job.state = 1 and job.version = ?;

-- name: delete_ended
delete from reprieve_ended where queue = ? and state = 1 and at = ? and id = ?
returning tenant, task, dependency, death, code, fingerprint;

-- name: uncount
update reprieve_lane set dead = dead - 1 where id = ?;

-- name: delete_jobs
delete from reprieve_job as job where id in (select value from json_each(?));

-- name: expired_keys
select expires_at, key, exists (select 1 from reprieve_job as job where job.id = unique_key.job)
from reprieve_unique_key as unique_key
where (expires_at, key) > (:after, :after_key) and expires_at <= :now order by expires_at, key limit :max_rows;

-- name: delete_key
delete from reprieve_unique_key where key = ?;

-- name: results
delete from reprieve_result as result where id in (
    select id from reprieve_result as old where expires_at <= :now order by expires_at limit :max_rows
);
