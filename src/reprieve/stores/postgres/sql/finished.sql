-- name: keep
with gone as (delete from job where id = any (%(ids)s::uuid[]))
insert into finished (queue, finished_at, kept, lowest_id, highest_id, ids, jobs)
values (%(queue)s, %(finished_at)s, %(kept)s, %(lowest_id)s, %(highest_id)s, %(ids)s::uuid[], %(jobs)s);

-- name: find
select jobs from finished where highest_id >= %(id)s::uuid and lowest_id <= %(id)s::uuid and %(id)s::uuid = any (ids);

-- name: jobs
select seq, jobs from finished where seq = any (%(rows)s::int8[]);

-- name: shorten
update finished set kept = %(kept)s, jobs = %(jobs)s where seq = %(seq)s;
