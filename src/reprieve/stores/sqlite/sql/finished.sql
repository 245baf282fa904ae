-- name: number
update reprieve_counter as counter set value = value + 1 where name = 'finished';

-- name: keep
insert into reprieve_finished (seq, queue, at, count, lowest, highest, newest, ids, jobs)
values (
    (select value from reprieve_counter as counter where name = 'finished'), ?, ?, ?, ?, ?,
    max(?, coalesce((select newest from reprieve_finished where seq = (select max(seq) from reprieve_finished)), 0)), ?, ?
);

-- name: find
select jobs from reprieve_finished as finished where highest >= ? and lowest <= ? and instr(ids, ?);

-- name: jobs
select jobs from reprieve_finished as finished where seq = ?;

-- name: shorten
update reprieve_finished as finished set count = ?, ids = ?, jobs = ? where seq = ?;
