-- name: enqueue_in
-- Part of a caller's transaction: its commit notifies the relay. The parameters are texts and bytes, which every driver can send.
-- An empty channel notifies no relay. It needs the right to insert, and no other.
with sent as (
    insert into {schema}.outbox (id, record)
    select v.id, substring(cast(%(records)s as bytea) from v.start for v.next - v.start)
    from unnest(cast(%(ids)s as text)::uuid[], cast(%(starts)s as text)::int4[], cast(%(nexts)s as text)::int4[])
         as v (id, start, next)
)
select array_to_json(cast(%(ids)s as text)::uuid[])::text,
       (select count(pg_notify(cast(%(channel)s as text), cast(%(queue)s as text))) where cast(%(channel)s as text) <> '');

-- name: settings
-- Whatever the planner estimates, the outbox is read along its primary key. And a removal must survive a crash of the server,
-- also where synchronous_commit is off.
select set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true);

-- name: take
-- Ordered by the columns of the table, not by the texts that are returned under the same names.
select xid::text, id::text, record from outbox where xid >= %(since)s::text::xid8 and refusal is null
order by outbox.xid, outbox.id limit %(max_jobs)s for update skip locked;

-- name: since
-- The transaction before which no job waits and none can appear; jobs that other relays have taken may come back.
select least(
    (select xid from outbox where xid >= %(since)s::text::xid8 and refusal is null order by xid limit 1),
    pg_snapshot_xmin(pg_current_snapshot())
)::text;

-- name: remove
delete from outbox using unnest(%(xids)s::text::xid8[], %(ids)s::text::uuid[]) as v (xid, id)
where outbox.xid = v.xid and outbox.id = v.id;

-- name: refuse
update outbox set refusal = v.refusal
from json_to_recordset(%(refused)s::json) as v (xid text, id uuid, refusal text)
where outbox.xid = v.xid::xid8 and outbox.id = v.id;

-- name: readmit
-- As rows of this transaction: a relay that runs has passed their old ones, and does not look there again.
with back as (
    update outbox set refusal = null, xid = pg_current_xact_id() where refusal is not null returning id
)
select count(*) from back;

-- name: holds
select 1 from outbox where id = %(id)s::text::uuid limit 1;

-- name: contents
select (select count(*) from outbox where refusal is null),
       (select id::text from outbox where refusal is null order by outbox.xid, outbox.id limit 1),
       (select count(*) from outbox where refusal is not null),
       (select refusal from outbox where refusal is not null order by outbox.id limit 1);
