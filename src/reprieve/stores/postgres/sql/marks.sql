-- name: holders
select s.name, l.jobs from lease as l join session as s on s.id = l.session;

-- name: cancels
select id, cancel from mark where cancel is not null;

-- name: mark
insert into mark as m (id, cancel, progress) values (%(id)s, %(cancel)s, %(progress)s)
on conflict (id) do update set cancel = coalesce(m.cancel, excluded.cancel), progress = coalesce(excluded.progress, m.progress);
