-- name: add
insert into reprieve_name_count (subject, name, ready, scheduled, retrying, parked, dead, cancelled)
select column1, column2, column3, column4, column5, column6, column7, column8 from (values {values}) where column1 is not null
on conflict (subject, name) do update
set ready = ready + excluded.ready, scheduled = scheduled + excluded.scheduled, retrying = retrying + excluded.retrying,
    parked = parked + excluded.parked, dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled;

-- name: forget
delete from reprieve_name_count
where ready = 0 and scheduled = 0 and retrying = 0 and parked = 0 and dead = 0 and cancelled = 0;
