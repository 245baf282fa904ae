-- name: sessions
select id, name from reprieve_session as session where name in (select value from json_each(?));

-- name: leases
select id, jobs from reprieve_lease as lease where id between ? and ?;

-- name: release
update reprieve_lease as lease set jobs = ? where id = ?;

-- name: release_all
delete from reprieve_lease as lease where id = ?;

-- name: delete_jobs
delete from reprieve_job as job where id in (select value from json_each(?));

-- name: undelay
delete from reprieve_delayed as delayed where queue = ? and wait = ? and due = ? and id = ?;

-- name: unready
delete from reprieve_ready as ready where lane = ? and at = ? and id = ?;

-- name: unready_anywhere
delete from reprieve_ready as ready where lane = ? and id = ?;

-- name: unend
delete from reprieve_ended as ended where queue = ? and state = ? and at = ? and id = ?
returning tenant, task, dependency, death, code, fingerprint;

-- name: rewrite
-- Replacing a row whole writes it once; an update from values would first copy them all aside, records included.
insert or replace into reprieve_job (id, lane, state, version, wait, due, record)
select column1, column2, column3, column4, column5, column6, column7 from (values {values}) where column1 is not null;

-- name: end
insert into reprieve_ended (queue, state, at, id, lane, tenant, task, dependency, death, code, fingerprint)
select column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11
from (values {values}) where column1 is not null;

-- name: count
update reprieve_lane as lane
set ready = ready + v.column2, scheduled = scheduled + v.column3, retrying = retrying + v.column4,
    parked = parked + v.column5, dead = dead + v.column6, cancelled = cancelled + v.column7,
    is_open = case when ready + v.column2 > 0 then is_open else 0 end
from (values {values}) as v where lane.id = v.column1;

-- name: tenants
update reprieve_tenant as tenant
set running = running - v.column2, load = cast((running - v.column2) * 1000000 / weight as integer),
    is_candidate = case blocked when 1 then 1 else is_candidate end, blocked = case blocked when 1 then 0 else blocked end,
    finish = case blocked when 1 then max(finish, (select clock from reprieve_queue as queue where id = tenant.queue)) else finish end
from (values {values}) as v where tenant.id = v.column1;

-- name: limiters
update reprieve_limiter as limiter set running = running - v.column2, reopens_at = case when blocked_lanes > 0 then 0 else reopens_at end
from (values {values}) as v where limiter.id = v.column1;

-- name: is_annotated
select 1 from reprieve_annotation limit 1;

-- name: delete_annotations
delete from reprieve_annotation as annotation where id in (select value from json_each(?));

-- name: results
insert into reprieve_result (id, expires_at, value)
select column1, column2, column3 from (values {values}) where column1 is not null
on conflict (id) do update set expires_at = excluded.expires_at, value = excluded.value;

-- name: events
insert into reprieve_event (at, job, version, data)
select column1, column2, column3, column4 from (values {values}) where column1 is not null;

-- name: event
select data from reprieve_event as event where job = ? and version = ? order by seq desc;

-- name: queue_limiter
select limiter, exists (select 1 from reprieve_limiter as pair where pair.subject = 'tenant_dependency')
from reprieve_queue as queue where name = ?;

-- name: pair_limiters
select id, pair_limiter from reprieve_lane as lane where id in (select value from json_each(?)) and pair_limiter > 0;
