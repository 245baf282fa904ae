-- name: number
update counter set value = value + 1 where name = 'finished';

-- name: keep
insert into finished (seq, queue, at, count, lo, hi, newest, ids, jobs)
values (
    (select value from counter where name = 'finished'), ?, ?, ?, ?, ?,
    max(?, coalesce((select newest from finished order by seq desc limit 1), 0)), ?, ?
);

-- name: find
select jobs from finished where hi >= ? and lo <= ? and instr(ids, ?);

-- name: jobs
select jobs from finished where seq = ?;

-- name: shorten
update finished set count = ?, ids = ?, jobs = ? where seq = ?;
