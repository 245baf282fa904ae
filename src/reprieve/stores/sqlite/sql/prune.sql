-- name: queues
select distinct queue from reprieve_finished as finished;

-- name: too_many
select seq, count from reprieve_finished as finished where queue = ? order by seq desc;

-- name: finished
delete from reprieve_finished as finished where queue = ? and (seq <= ? or at < ?) returning count;

-- name: all_queues
select id from reprieve_queue;

-- name: cancelled
delete from reprieve_ended where queue = ? and state = 2 and at < ? returning id;

-- name: dead
select job.shelf, shelf.queue from reprieve_job as job join reprieve_shelf as shelf on shelf.id = job.shelf
where job.id = ? and job.state = 1 and job.version = ?;

-- name: unlist
delete from reprieve_ended where queue = ? and state = 1 and at = ? and id = ?;

-- name: uncount
update reprieve_shelf set dead = dead - 1 where id = ?;

-- name: forget
delete from reprieve_job as job where id in (select value from json_each(?));

-- name: events
delete from reprieve_event as event where at < ?;

-- name: keys
delete from reprieve_uniq as uniq where expires <= ? and not exists (select 1 from reprieve_job as job where job.id = uniq.job);

-- name: results
delete from reprieve_result as result where expires_at <= ?;
