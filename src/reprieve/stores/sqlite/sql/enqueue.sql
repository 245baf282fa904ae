-- name: known
select job.id, job.record from reprieve_job as job where job.id in (select value from json_each(?));

-- name: newest
select coalesce((select max(id) from reprieve_job), 0),
       coalesce((select newest from reprieve_finished where seq = (select max(seq) from reprieve_finished)), 0),
       (select value from reprieve_counter where name = 'lanes_deleted');

-- name: keys
select key, id, expires_at, exists (select 1 from reprieve_job as job where job.id = unique_key.job)
from reprieve_unique_key as unique_key where key in ({placeholders});

-- name: acquire_keys
insert into reprieve_unique_key (key, id, job, expires_at)
select column1, column2, column3, column4 from (values {values}) where column1 is not null
on conflict (key) do update set id = excluded.id, job = excluded.job, expires_at = excluded.expires_at;

-- name: jobs
insert into reprieve_job (id, lane, state, version, wait, due, record)
select column1, column2, 0, column3, column4, column5, column6 from (values {values}) where column1 is not null;

-- name: ready
insert into reprieve_ready (lane, at, id)
select column1, column2, column3 from (values {values}) where column1 is not null;

-- name: delayed
insert into reprieve_delayed (queue, wait, due, id, lane, tenant, task, dependency, code, fingerprint)
select column1, column2, column3, column4, column5, column6, column7, column8, column9, column10 from (values {values}) where column1 is not null;

-- name: count
update reprieve_lane as lane
set ready = ready + v.column2, scheduled = scheduled + v.column3, retrying = retrying + v.column4,
    parked = parked + v.column5
from (values {values}) as v where lane.id = v.column1;

-- name: count_for_series
insert into reprieve_series_enqueued (minute, lane, count)
select column1, column2, column3 from (values {values}) where column1 is not null
on conflict (minute, lane) do update set count = count + excluded.count;

-- name: open
update reprieve_lane as lane set is_open = 1 from (values {values}) as v
where lane.id = v.column1 and lane.is_open = 0 and lane.blocked_by = 0;

-- name: make_candidates
update reprieve_tenant as tenant set is_candidate = 1, finish = max(finish, (select clock from reprieve_queue as queue where queue.id = tenant.queue))
from (values {values}) as v
where tenant.id = v.column1 and tenant.is_candidate = 0 and tenant.blocked = 0;
