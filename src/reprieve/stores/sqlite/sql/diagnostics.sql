-- name: sessions
select id, is_dead or expires_at < ? from reprieve_session as session;

-- name: leases
select jobs from reprieve_lease as lease where id between ? and ?;

-- name: newest
select max(at) from reprieve_event as event;

-- name: records
select record from reprieve_job;
