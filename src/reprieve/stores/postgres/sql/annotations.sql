-- name: is_held
select exists (select 1 from lease where position(uuid_send(%(id)s::uuid) in jobs) > 0);

-- name: is_held_by
select exists (
    select 1 from session as s join lease as l on l.session = s.id and l.claim >= s.first_lease
    where s.name = %(session)s and position(uuid_send(%(id)s::uuid) in l.jobs) > 0
);

-- name: cancels
select id, cancel from annotation where cancel is not null;

-- name: annotate
insert into annotation as a (id, cancel, progress) values (%(id)s, %(cancel)s, %(progress)s)
on conflict (id) do update set cancel = coalesce(a.cancel, excluded.cancel), progress = coalesce(excluded.progress, a.progress);
