-- name: cancels
select id, cancel from reprieve_annotation as annotation where cancel is not null;

-- name: annotate
insert into reprieve_annotation (id, cancel, progress) values (?, ?, ?)
on conflict (id) do update set
    cancel = coalesce(cancel, excluded.cancel), progress = coalesce(excluded.progress, progress);

-- name: is_requested
select 1 from reprieve_annotation as annotation where id = ? and cancel is not null;
