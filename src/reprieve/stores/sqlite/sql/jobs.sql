-- name: job
select id, state, version, wait, due, lane, record from reprieve_job as job where id = ?;

-- name: damage
-- The first 8 bytes are the middle of the public id.
update reprieve_job as job set record = cast(substr(record, 1, 8) || ? as blob) where id = ?;
