-- name: job
select id, state, version, wait, due, lane, record from reprieve_job as job where id = ?;
