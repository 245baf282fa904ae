-- name: add_delta
insert into reprieve_series_delta (packed) values (:packed);

-- name: deltas
select seq, packed from reprieve_series_delta as delta order by seq limit :max_rows;

-- name: delete_deltas
delete from reprieve_series_delta where seq <= :seq;

-- name: enqueued
select enqueued.minute, enqueued.lane, enqueued.count, queue.name, lane.task, lane.dependency, tenant.name
from reprieve_series_enqueued as enqueued
join reprieve_lane as lane on lane.id = enqueued.lane
join reprieve_tenant as tenant on tenant.id = lane.tenant
join reprieve_queue as queue on queue.id = lane.queue
order by enqueued.minute, enqueued.lane limit :max_rows;

-- name: delete_enqueued
delete from reprieve_series_enqueued where (minute, lane) <= (:minute, :lane);

-- name: lines_of_buckets
select series.step, series.at, series.subject, series.name, series.packed from json_each(:buckets) as bucket
cross join reprieve_series as series on series.step = json_extract(bucket.value, '$.step')
    and series.at = json_extract(bucket.value, '$.at') and series.subject = json_extract(bucket.value, '$.subject');

-- name: write_lines
insert into reprieve_series (step, at, subject, name, packed)
select column1, column2, column3, column4, column5 from (values {values}) where column1 is not null
on conflict (step, at, subject, name) do update set packed = excluded.packed;

-- name: lines_of_names
select series.name, series.at, series.packed from json_each(:names) as name cross join json_each(:ats) as at
cross join reprieve_series as series
    on series.step = :step and series.at = at.value and series.subject = :subject and series.name = name.value;

-- name: lines_of_subject
select series.name, series.at, series.packed from json_each(:ats) as at
cross join reprieve_series as series on series.step = :step and series.at = at.value and series.subject = :subject;

-- name: prune
delete from reprieve_series where (step, at, subject, name) in (
    select old.step, old.at, old.subject, old.name from reprieve_series as old
    where old.step = :step and old.at < :before order by old.at limit :max_rows
);
