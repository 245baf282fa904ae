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

-- name: unrequested
-- Nothing if the cancel of the job was requested before.
select l.queue_name, l.tenant_name from job as j join lane as l on l.id = j.lane
where j.id = %(id)s::uuid and not exists (select 1 from annotation where id = %(id)s::uuid and cancel is not null);
