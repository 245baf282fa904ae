-- name: is_due
select exists (select 1 from reprieve_expiring as expiring where at <= :now)
    or exists (select 1 from reprieve_lane as lane where expires_at <= :now);

-- name: remove_leftovers
delete from reprieve_expiring as expiring where (at, id) in (
    select at, id from (select at, id from reprieve_expiring as first where at <= ? order by at, id limit ?) as due
    where not exists (select 1 from reprieve_job as job where job.id = due.id and job.state = 0));

-- name: due
select at, id from reprieve_expiring as expiring where at <= ? order by at, id limit ?;

-- name: add
insert or ignore into reprieve_expiring (at, id)
select column1, column2 from (values {values}) where column1 is not null;

-- name: remove
delete from reprieve_expiring as expiring where (at, id) in (
    select cast(column1 as integer), cast(column2 as integer) from (values {values}));

-- name: spans
select id, ready, deadline_span, swept_until, expires_at from reprieve_lane as lane
where id in (select value from json_each(?));

-- name: due_lanes
select id, ready, deadline_span, swept_until, expires_at from reprieve_lane as lane
where expires_at <= ? order by expires_at limit ?;

-- name: set_spans
update reprieve_lane as lane set deadline_span = v.column2, swept_until = v.column3, expires_at = v.column4
from (values {values}) as v where lane.id = v.column1;

-- name: first_ready
select r.at, job.id, job.state, job.version, job.wait, job.due, job.lane, job.record
from (select * from reprieve_ready as ready where lane = ? and at > ? and at <= ? order by at, id limit ?) as r
cross join reprieve_job as job on job.id = r.id;

-- name: next_ready_at
select min(at) from reprieve_ready as ready where lane = ? and at > ?;
