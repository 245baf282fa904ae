-- name: number
update reprieve_counter as counter set value = value + 1 where name = 'finished';

-- name: keep
insert into reprieve_finished (seq, queue, at, count, lowest, highest, newest, ids, jobs)
values (
    (select value from reprieve_counter as counter where name = 'finished'), :queue, :at, :count, :lo, :hi,
    max(:hi, coalesce((select newest from reprieve_finished where seq = (select max(seq) from reprieve_finished)), 0)),
    :ids, :jobs
);

-- name: find
select jobs from reprieve_finished as finished where highest >= :id and lowest <= :id and instr(ids, :bytes);

-- name: jobs
select jobs from reprieve_finished as finished where seq = :seq;

-- name: shorten
update reprieve_finished as finished set count = :count, ids = :ids, jobs = :jobs where seq = :seq;
