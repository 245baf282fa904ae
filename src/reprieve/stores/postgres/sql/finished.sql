-- name: keep
with gone as (delete from job where id = any (%(ids)s::uuid[]))
insert into finished (queue, at, count, lo, hi, ids, jobs)
values (%(queue)s, %(at)s, %(count)s, %(lo)s, %(hi)s, %(ids)s::uuid[], %(jobs)s);

-- name: find
select jobs from finished where hi >= %(id)s::uuid and lo <= %(id)s::uuid and %(id)s::uuid = any (ids);

-- name: jobs
select seq, jobs from finished where seq = any (%(rows)s::int8[]);

-- name: shorten
update finished set count = %(count)s, jobs = %(jobs)s where seq = %(seq)s;
