-- name: enqueue_in
-- Part of somebody else's transaction, so its commit itself tells the relay. Whatever the driver, its parameters are texts and
-- bytes. Without a channel nobody is told. It needs the right to insert, and no other.
with sent as (
    insert into {schema}.outbox (id, rec)
    select v.id, substring(cast(%(recs)s as bytea) from v.start for v.next - v.start)
    from unnest(cast(%(ids)s as text)::uuid[], cast(%(starts)s as text)::int4[], cast(%(nexts)s as text)::int4[])
         as v (id, start, next)
)
select array_to_json(cast(%(ids)s as text)::uuid[])::text,
       (select count(pg_notify(cast(%(channel)s as text), cast(%(news)s as text))) where cast(%(channel)s as text) <> '');

-- name: settings
-- Whatever the server guesses of its size, the outbox is walked along its key, from its beginning. And what is removed must
-- stay so, also if the server crashes and is set to forget its last moments.
select set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true);

-- name: take
-- The order is that of the table's columns, not that of the texts which are answered under the same names.
select xid::text, id::text, rec from outbox where xid >= %(since)s::text::xid8 and reason is null
order by outbox.xid, outbox.id limit %(most)s for update skip locked;

-- name: since
-- Before this, nothing is left that waits, and nothing can come: what others have taken may come back.
select least(
    (select xid from outbox where xid >= %(since)s::text::xid8 and reason is null order by xid limit 1),
    pg_snapshot_xmin(pg_current_snapshot())
)::text;

-- name: remove
delete from outbox using unnest(%(xids)s::text::xid8[], %(ids)s::text::uuid[]) as v (xid, id)
where outbox.xid = v.xid and outbox.id = v.id;

-- name: refuse
update outbox set reason = v.reason
from json_to_recordset(%(refused)s::json) as v (xid text, id uuid, reason text)
where outbox.xid = v.xid::xid8 and outbox.id = v.id;

-- name: readmit
with back as (update outbox set reason = null where reason is not null returning id) select count(*) from back;

-- name: holds
select 1 from outbox where id = %(id)s::text::uuid limit 1;

-- name: contents
select (select count(*) from outbox where reason is null),
       (select id::text from outbox where reason is null order by outbox.xid, outbox.id limit 1),
       (select count(*) from outbox where reason is not null),
       (select reason from outbox where reason is not null order by outbox.id limit 1);
