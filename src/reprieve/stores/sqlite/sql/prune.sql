-- name: queues
select distinct queue from finished;

-- name: too_many
select seq, count from finished where queue = ? order by seq desc;

-- name: finished
delete from finished where queue = ? and (seq <= ? or at < ?) returning count;

-- name: cancelled
delete from ended where state = 2 and at < ? returning id;

-- name: forget
delete from job where id in (select value from json_each(?));

-- name: events
delete from event where at < ?;

-- name: keys
delete from uniq where expires <= ? and not exists (select 1 from job where job.id = uniq.job);

-- name: results
delete from result where expires_at <= ?;
