-- The first layout. Numbers of queues, tenants, limiters and lanes are made from their names, so whoever enqueues need not look
-- them up, and two who make the same one at once make the same.

create table queue (
    id       int8 primary key,
    name     text not null,
    limiter     int8 not null,               -- its own limits
    clock    int8 not null default 0,     -- virtual time, in millionths of a round
    last     int8 not null default 0,     -- the tenant that was served last
    streak   int8 not null default 0,     -- and how often in a row
    last_at  int8 not null default 0,
    other_at int8 not null default 0,     -- when a tenant other than the last was served
    pauses   int8 not null default 0,     -- bit 1: schedule, bit 2: retry
    due_lows int8[] not null default '{0, 0, 0, 0}'              -- for each wait: no row of `delayed` that was counted is before
) with (fillfactor = 50);

create table limiter (
    id          int8 primary key,
    subject     text not null,
    name        text not null,
    permits     int8,                     -- null: open, 0: held, else a step of the ramp
    max_running int8,
    rate_count  int8,
    rate_window float8,
    meter       text not null default '[]',
    running     int8 not null default 0,
    aside       boolean not null default false,                  -- whether lanes are set aside because of this limiter
    cursor      int8 not null default -9223372036854775808,      -- the tenant whose lanes returned last
    back_at     int8                                             -- when to look at what is set aside
) with (fillfactor = 50);
create index limiter_back on limiter (back_at) where back_at is not null;

create table tenant (
    id          int8 primary key,
    queue       int8 not null,
    name        text collate "C" not null,     -- candidates are ordered by its bytes in the end, as in every store
    weight      float8 not null default 1,
    load        int8 not null default 0,  -- running / weight, in millionths
    finish      int8 not null default 0,  -- virtual time, in millionths of a round
    running     int8 not null default 0,
    ringed      boolean not null default false,                  -- may have a job that can be claimed
    blocked     int8 not null default 0,  -- 1: by max_running, 2: by rate, 3: held
    permits     int8,
    max_running int8,
    rate_count  int8,
    rate_window float8,
    meter       text not null default '[]',
    back_at     int8,
    served      int8 not null default 0,
    served_at   int8,
    -- Indexes know no column that every claim changes: a row that is written in place leaves nothing to walk over. A claim
    -- reads and sorts all who wait, unless they are a crowd.
    is_crowd    boolean not null default false,
    its_load    int8 generated always as (case when is_crowd then load end) stored,
    its_finish  int8 generated always as (case when is_crowd then finish end) stored,
    is_busy     boolean generated always as (running > 0 and not ringed) stored
) with (fillfactor = 50);
create index tenant_ring on tenant (queue, id) where ringed and not is_crowd;
create index tenant_crowd on tenant (queue, its_load, its_finish, name) where ringed and is_crowd;
create index tenant_busy on tenant (queue) where is_busy;
create index tenant_back on tenant (back_at) where back_at is not null;

create table lane (                      -- the jobs of one priority in a lane, counted
    id              int8 primary key,
    queue           int8 not null,
    tenant          int8 not null,
    queue_name      text not null,
    tenant_name     text not null,
    task            text not null,
    dependency      text not null,
    "group"         text not null,
    priority        int8 not null,
    task_limiter       int8 not null,
    dependency_limiter int8 not null,        -- 0: none
    group_limiter      int8 not null,        -- 0: none
    ready           int8 not null default 0,
    scheduled       int8 not null default 0,
    retrying        int8 not null default 0,
    parked          int8 not null default 0,
    dead            int8 not null default 0,
    low             uuid not null default '00000000-0000-0000-0000-000000000000',    -- fresh jobs up to it were taken
    back            uuid not null default 'ffffffff-ffff-ffff-ffff-ffffffffffff',    -- no row of `ready` is before it
    is_open         boolean not null default false,              -- has ready jobs and waits for no limiter
    aside           int8 not null default 0,                     -- the limiter that it waits for
    served          int8 not null default 0                      -- the tenant's pick that last took from it
) with (fillfactor = 50);
create index lane_open on lane (tenant, priority, served) where is_open;
create index lane_aside on lane (aside, tenant) where aside <> 0;

-- A job's row is written when it comes and deleted when it has succeeded; that it runs is known from its lease.
create table job (
    id      uuid not null primary key with (fillfactor = 100),
    lane   int8 not null,
    due     int8,                         -- null: the moment of its id
    version int4 not null,                -- not counting a lease
    state   int2 not null,                -- 0: waiting or running, 1: dead, 2: cancelled, 3: the same as 0, and fresh
    wait    int2 not null,                -- what it waits for; may lag behind `ready`
    rec     bytea not null
);
alter table job alter rec set storage external;
-- A fresh job was ready when it came, and nothing but a claim has happened to it. Whether one has, the low mark of its lane
-- tells, so that neither an enqueue nor a claim writes more than it must.
create index job_fresh on job (lane, id) with (fillfactor = 100) where state = 3;

-- Jobs that are ready once more, or became so late: all that are not fresh, and fresh ones that came when others, made
-- after them, were taken already.
create table ready (lane int8 not null, id uuid not null, primary key (lane, id));

create table delayed (
    queue int8 not null,
    wait  int8 not null,
    due   int8 not null,
    id    uuid not null,
    lane int8 not null,
    primary key (queue, wait, due, id)
);

-- What enqueues have added and no turn has counted yet. Whoever enqueues writes nothing that others write, so that a
-- transaction of an application that is left open keeps nobody from anything.
create table ledger (
    xid        xid8 not null default pg_current_xact_id(),
    lane      int8 not null,
    queue      text not null,
    tenant     text not null,
    task       text not null,
    dependency text not null,
    "group"    text not null,
    priority   int8 not null,
    ready      int8 not null,
    scheduled  int8 not null,
    retrying   int8 not null,
    parked     int8 not null,
    low        uuid not null,             -- the smallest and
    high       uuid not null,             -- the largest id among them
    due        int8                       -- the first moment at which one is due that is not ready
);
create index ledger_xid on ledger (xid);

-- Rows of the ledger whose lane has the number of another: they are not counted, and their jobs wait for somebody to look.
create table misfit (like ledger);
alter table misfit alter xid drop not null;

-- Jobs on their way to another store, in the order of the transactions that sent them. Nobody but a relay changes or removes
-- rows, and of transactions that have ended it remembers only a number, as the claim does of the ledger.
create table outbox (
    xid    xid8 not null default pg_current_xact_id(),
    id     uuid not null,
    rec    bytea not null,                -- the whole job
    reason text,                          -- why the other store refuses it; null: it waits
    primary key (xid, id)
);
alter table outbox alter rec set storage external;
create index outbox_refused on outbox (id) where reason is not null;

create table session (
    id         int8 generated always as identity primary key,
    name       text    not null unique,
    expires_at int8    not null,
    slots      int8    not null,
    is_dead    boolean not null default false,
    first      int8    not null default 0,                       -- no lease of it has a smaller number
    number     int8    not null default 0,                       -- of the last claim
    answers    bytea                                             -- and what its changes were answered with
) with (fillfactor = 50);
create index session_slots on session (slots) where not is_dead;
create index session_dead on session (id) where is_dead;

create table lease (                      -- one row for each claim
    session int8  not null,
    number  int8  not null,
    at      int8  not null,
    jobs    bytea not null,               -- of each: its id, its lane and its version, in 16, 8 and 8 bytes
    primary key (session, number)
) with (toast_tuple_target = 8160);
alter table lease alter jobs set storage external;

create table ended (                      -- the dead and the cancelled
    queue       int8 not null,
    state       int8 not null,
    at          int8 not null,
    id          uuid not null,
    lane       int8 not null,
    death       text not null,
    code        text not null,
    fingerprint text not null,
    primary key (queue, state, at, id)
);

create table finished (                   -- succeeded jobs, one row for each settlement; their ids stay for a while
    seq   int8 generated always as identity primary key,
    queue int8 not null,
    at    int8 not null,
    count int8 not null,                  -- of those that are kept
    lo    uuid not null,                  -- the smallest and
    hi    uuid not null,                  -- the largest id in it
    ids   uuid[] not null,
    jobs  bytea not null
);
alter table finished alter jobs set storage external, alter ids set storage external;
create index finished_queue on finished (queue, seq) where count > 0;
create index finished_past on finished (queue, seq) where count = 0;
create index finished_hi on finished (hi, lo);

create table uniq (
    key     bytea primary key,
    id      uuid not null,                -- the job that has it
    expires int8 not null
);
create index uniq_expires on uniq (expires);

create table annotation (id uuid primary key, cancel bytea, progress bytea);
create index annotation_cancel on annotation (id) where cancel is not null;

create table result (id uuid primary key, expires_at int8 not null, value bytea not null);
create index result_expires on result (expires_at);

create sequence event_seq;
create table event (                      -- a part for each day, so that days are forgotten whole
    seq     int8 not null default nextval('event_seq'),
    at      int8 not null,
    job     uuid not null,
    version int8 not null,
    data    bytea not null
) partition by range (at);
create index event_seq_at on event (seq);
create index event_at on event (at);
create index event_job on event (job, version);
create table event_other partition of event default;                -- days that nobody has prepared

-- Prepare the days after this one, a week at the most. A reader who stays for long is not waited for: the next call tries
-- again.
create function prepare_days(now int8, count int8) returns void language plpgsql
security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    today int8 := least(now / 86400000, extract(epoch from clock_timestamp())::int8 / 86400 + 1);
    day int8;
begin
    for day in select today + n from generate_series(1, least(count, 7)) as n loop
        if to_regclass(format('%I.event_%s', current_schema(), day)) is null then
            execute format(
                'create table %1$I.%2$I partition of %1$I.event for values from (%3$s) to (%4$s)',
                current_schema(), 'event_' || day, day * 86400000, (day + 1) * 86400000
            );
        end if;
    end loop;
exception when lock_not_available or check_violation or duplicate_table then
    null;
end
$$;

-- Today as well, so that nothing is stored among the other days where clocks are right.
select prepare_days((extract(epoch from now()) * 1000)::int8 - 86400000, 4);

-- Forget the oldest day that is over, by the server's clock as well, and that was prepared; answer how many events went with
-- it, or that they were many: everybody waits meanwhile.
create function forget_day(before int8) returns int8 language plpgsql
security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    over int8 := least(before, extract(epoch from clock_timestamp())::int8 * 1000);
    oldest regclass;
    gone int8;
begin
    select c.oid into oldest from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
    where i.inhparent = format('%I.event', current_schema())::regclass and c.relname ~ '^event_[0-9]+$'
      and (substring(c.relname from 7)::int8 + 1) * 86400000 <= over
    order by substring(c.relname from 7)::int8 limit 1;
    if oldest is null then
        return 0;
    end if;
    execute format('select count(*) from (select 1 from %s limit 10000) as many', oldest) into gone;
    execute format('drop table %s', oldest);
    return gone;
exception when lock_not_available then
    return 0;
end
$$;

-- Both do what the owner alone may do, for those whom the owner allows it.
revoke execute on function prepare_days(int8, int8), forget_day(int8) from public;

create table entry (key text collate "C" primary key, version int8 not null, value bytea not null);
create sequence entry_version;

-- Make the number of something from its names, as the clients do.
create function number_of(variadic names text[]) returns int8 language plpgsql immutable as $$
begin
    return ('x' || encode(substring(sha256(convert_to(array_to_string(names, chr(1)), 'UTF8')) for 8), 'hex'))::bit(64)::int8;
end
$$;

-- Make the queues, tenants, limiters and lanes that rows of the ledger speak of.
create function make_lanes(rows ledger[]) returns void language plpgsql as $$
begin
    insert into limiter (id, subject, name)
    select number_of('limiter', v.subject, v.name), v.subject, v.name
    from unnest(rows) as r, lateral (values
        ('queue', r.queue), ('task', r.task), ('dependency', r.dependency), ('group', r."group")
    ) as v (subject, name)
    where v.name <> '' group by v.subject, v.name
    on conflict (id) do nothing;

    insert into queue (id, name, limiter)
    select distinct number_of('queue', r.queue), r.queue, number_of('limiter', 'queue', r.queue) from unnest(rows) as r
    on conflict (id) do nothing;

    insert into tenant (id, queue, name)
    select distinct number_of('tenant', r.queue, r.tenant), number_of('queue', r.queue), r.tenant from unnest(rows) as r
    on conflict (id) do nothing;

    insert into lane (id, queue, tenant, queue_name, tenant_name, task, dependency, "group", priority,
                       task_limiter, dependency_limiter, group_limiter)
    select r.lane, number_of('queue', r.queue), number_of('tenant', r.queue, r.tenant), r.queue, r.tenant,
           r.task, r.dependency, r."group", r.priority, number_of('limiter', 'task', r.task),
           case r.dependency when '' then 0 else number_of('limiter', 'dependency', r.dependency) end,
           case r."group" when '' then 0 else number_of('limiter', 'group', r."group") end
    from unnest(rows) as r
    on conflict (id) do nothing;
end
$$;

-- Let tenants wait for their turn that did not.
create function ring(tenants int8[]) returns void language plpgsql as $$
begin
    update tenant as t set ringed = true, finish = greatest(t.finish, (select q.clock from queue as q where q.id = t.queue))
    where t.id = any (tenants) and not t.ringed and t.blocked = 0;
end
$$;

-- Returns the ids of all jobs that sessions hold, as they are written in their leases.
create function leased() returns setof bytea language plpgsql stable as $$
begin
    return query select substring(l.jobs from place for 16) from lease as l, generate_series(1, length(l.jobs), 32) as place;
end
$$;

-- Put fresh jobs where they are found that are before the low marks of their lanes and were not taken.
create function requeue_late(rows ledger[]) returns void language plpgsql as $$
begin
    insert into ready (lane, id)
    select j.lane, j.id
    from unnest(rows) as r join lane as s on s.id = r.lane
    join lateral (
        select job.lane, job.id from job
        where job.state = 3 and job.lane = r.lane and job.id between r.low and least(r.high, s.low)
    ) as j on true
    where r.ready > 0 and r.low <= s.low and uuid_send(j.id) not in (select leased())
    on conflict do nothing;
    update lane as s set back = least(s.back, r.low) from unnest(rows) as r
    where s.id = r.lane and r.ready > 0 and r.low <= s.low;
end
$$;

-- Look for what is due from these moments on: jobs have come that wait for them.
create function lower_due(queues int8[], dues int8[]) returns void language plpgsql as $$
begin
    update queue as q
    set due_lows = array(select least(low, v.due) from unnest(q.due_lows) with ordinality as l (low, wait) order by wait)
    from (select d.queue, min(d.due) as due from unnest(queues, dues) as d (queue, due) group by d.queue) as v
    where q.id = v.queue and v.due < any (q.due_lows);
end
$$;

-- Returns when the first job of a queue is due that is not paused.
create function first_due(number int8) returns int8 language plpgsql as $$
begin
    return (select least(
        case when q.pauses & 1 = 0 then (
            select d.due from delayed as d where d.queue = number and d.wait = 1 and d.due >= q.due_lows[1] order by d.due limit 1
        ) end,
        case when q.pauses & 2 = 0 then (
            select d.due from delayed as d where d.queue = number and d.wait = 2 and d.due >= q.due_lows[2] order by d.due limit 1
        ) end,
        (select d.due from delayed as d where d.queue = number and d.wait = 3 and d.due >= q.due_lows[3] order by d.due limit 1),
        (select d.due from delayed as d where d.queue = number and d.wait = 4 and d.due >= q.due_lows[4] order by d.due limit 1)
    ) from queue as q where q.id = number);
end
$$;

-- Returns the lanes whose queue, tenant or limiter has the number of another.
create function taken(rows ledger[]) returns int8[] language plpgsql as $$
begin
    return (
        with queues as materialized (
            select n.queue, number_of('queue', n.queue) as id from (select distinct queue from unnest(rows)) as n
        ), tenants as materialized (
            select n.queue, n.tenant, number_of('tenant', n.queue, n.tenant) as id
            from (select distinct queue, tenant from unnest(rows)) as n
        ), limiters as materialized (
            select n.subject, n.name, number_of('limiter', n.subject, n.name) as id from (
                select distinct v.subject, v.name from unnest(rows) as r, lateral (values
                    ('queue', r.queue), ('task', r.task), ('dependency', r.dependency), ('group', r."group")
                ) as v (subject, name)
            ) as n
        ), other_limiters as materialized (
            select g.subject, g.name from limiters as g join limiter as k on k.id = g.id
            where (k.subject, k.name) <> (g.subject, g.name)
        )
        select array(
            select r.lane from unnest(rows) as r
            where r.queue in (select q.queue from queues as q join queue as k on k.id = q.id where k.name <> q.queue)
               or (r.queue, r.tenant) in (
                   select t.queue, t.tenant from tenants as t join queues as q on q.queue = t.queue
                   join tenant as k on k.id = t.id where (k.name, k.queue) <> (t.tenant, q.id)
               )
               or ('queue', r.queue) in (select subject, name from other_limiters)
               or ('task', r.task) in (select subject, name from other_limiters)
               or ('dependency', r.dependency) in (select subject, name from other_limiters)
               or ('group', r."group") in (select subject, name from other_limiters)
        )
    );
end
$$;

-- Put aside what was enqueued to lanes whose number others have as well, so that nobody runs it as something else: whatever
-- lies between the ids, since no job knows by itself which of them it is of. Answers the rest.
create function put_aside(rows ledger[]) returns ledger[] language plpgsql as $$
declare
    others int8[] := taken(rows);
    mixed int8[] := array(
        select r.lane from unnest(rows) as r left join lane as s on s.id = r.lane
        group by r.lane
        having count(*) > 1 or r.lane = any (others) or bool_or(
            (s.queue_name, s.tenant_name, s.task, s.dependency, s."group", s.priority)
            <> (r.queue, r.tenant, r.task, r.dependency, r."group", r.priority))
    );
begin
    insert into misfit select r.* from unnest(rows) as r where r.lane = any (mixed);
    with found as (
        select distinct j.id, j.lane, j.state, j.wait from unnest(rows) as r
        join job as j on j.lane = r.lane and j.id between r.low and r.high
        where r.lane = any (mixed) and j.state in (0, 3) and uuid_send(j.id) not in (select leased())
          and not exists (select 1 from ready where ready.lane = j.lane and ready.id = j.id)
    ), moved as (
        update job set state = 4 from found where job.id = found.id
    ), undelayed as (
        delete from delayed as d using found where d.lane = found.lane and d.id = found.id
    ), counts as (
        select lane, 1 as sign, count(*) filter (where state = 3) as ready,
               count(*) filter (where state = 0 and wait in (0, 1)) as scheduled,
               count(*) filter (where state = 0 and wait = 2) as retrying,
               count(*) filter (where state = 0 and wait > 2) as parked
        from found group by lane
        union all
        select lane, -1, sum(ready), sum(scheduled), sum(retrying), sum(parked) from unnest(rows) group by lane
    ), counted_before as (
        select lane, sum(sign * ready)::int8 as ready, sum(sign * scheduled)::int8 as scheduled,
               sum(sign * retrying)::int8 as retrying, sum(sign * parked)::int8 as parked
        from counts where lane = any (mixed) group by lane
    )
    update lane as s
    set ready = s.ready - v.ready, scheduled = s.scheduled - v.scheduled, retrying = s.retrying - v.retrying,
        parked = s.parked - v.parked, is_open = s.is_open and s.ready - v.ready > 0
    from counted_before as v where s.id = v.lane;
    return array(select r from unnest(rows) as r where r.lane <> all (mixed));
end
$$;

-- Take the turn: from here to the end of the transaction nobody else claims, settles or updates limits. Then count what came, so
-- much of it that nobody waits for long. Of transactions that `since` has seen to end nothing is left to count; answers the
-- next such snapshot, or null when there is more to count.
create function take_turn(since pg_snapshot) returns pg_snapshot language plpgsql as $$
declare
    counted pg_snapshot;
    open xid8[];
    found int8;
    rows ledger[];
    missing ledger[];
    unringed int8[];
    is_mixed boolean;
    is_late boolean;
begin
    perform pg_advisory_xact_lock(1919250544, ('queue'::regclass::oid::int8 & 2147483647)::int4);
    counted := pg_current_snapshot();
    if pg_snapshot_xmax(since) > pg_snapshot_xmax(counted) then
        since := '1:1:';    -- of another server, which this one has followed
    end if;
    open := array(select pg_snapshot_xip(since));
    with chosen as (
        (select l.ctid as place from ledger as l where l.xid >= pg_snapshot_xmax(since) order by l.xid limit 1000)
        union all
        (select l.ctid as place from ledger as l where l.xid = any (open) limit 1000)
    ), gone as (
        delete from ledger where ctid = any (array(select place from chosen)) returning *
    ), sums as (
        select lane, queue, tenant, task, dependency, "group", priority, sum(ready)::int8 as ready,
               sum(scheduled)::int8 as scheduled, sum(retrying)::int8 as retrying, sum(parked)::int8 as parked,
               (array_agg(low order by low))[1] as low, (array_agg(high order by high desc))[1] as high,
               min(due) as due
        from gone group by lane, queue, tenant, task, dependency, "group", priority
    )
    select (select count(*) from gone),
           array_agg(row(null, s.lane, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority,
                         s.ready, s.scheduled, s.retrying, s.parked, s.low, s.high, s.due)::ledger)
    into found, rows from sums as s;
    if found >= 1000 then
        counted := null;
    end if;
    if rows is null then
        return counted;
    end if;
    select array_agg(r) filter (where s.id is null), count(distinct r.lane) < count(*) or
           bool_or((s.queue_name, s.tenant_name, s.task, s.dependency, s."group", s.priority)
                   <> (r.queue, r.tenant, r.task, r.dependency, r."group", r.priority))
    into missing, is_mixed from unnest(rows) as r left join lane as s on s.id = r.lane;
    if is_mixed or (missing is not null and taken(missing) <> '{}') then
        rows := put_aside(rows);
        missing := array(select r from unnest(rows) as r where not exists (select 1 from lane where lane.id = r.lane));
    end if;
    if missing is not null then
        perform make_lanes(missing);
    end if;
    update lane as s
    set ready = s.ready + r.ready, scheduled = s.scheduled + r.scheduled, retrying = s.retrying + r.retrying,
        parked = s.parked + r.parked, is_open = s.is_open or (s.aside = 0 and s.ready + r.ready > 0)
    from unnest(rows) as r where s.id = r.lane;
    perform lower_due(array_agg(number_of('queue', r.queue)), array_agg(r.due)) from unnest(rows) as r
    where r.due is not null having count(*) > 0;
    select coalesce(bool_or(r.low <= s.low), false), array_agg(distinct t.id) filter (where not t.ringed and t.blocked = 0)
    into is_late, unringed
    from unnest(rows) as r join lane as s on s.id = r.lane join tenant as t on t.id = s.tenant where r.ready > 0;
    if is_late then
        perform requeue_late(rows);
    end if;
    if unringed is not null then
        perform ring(unringed);
    end if;
    return counted;
end
$$;

-- Let tenants return whose rate allows it again, and move jobs that are due to their lanes, some of each kind of wait.
create function promote(number int8, now int8, most int8) returns void language plpgsql as $$
declare
    pauses int8;
    lows int8[];
begin
    update tenant as t
    set blocked = 0, ringed = true, back_at = null,
        finish = greatest(t.finish, (select q.clock from queue as q where q.id = t.queue))
    where t.back_at <= now;
    if coalesce(first_due(number) > now, true) then
        return;
    end if;
    select q.pauses, q.due_lows into pauses, lows from queue as q where q.id = number;
    with due as (
        (select * from delayed where queue = number and wait = 1 and due between lows[1] and now and pauses & 1 = 0
         order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 2 and due between lows[2] and now and pauses & 2 = 0
         order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 3 and due between lows[3] and now order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 4 and due between lows[4] and now order by due, id limit most)
    ), gone as (
        delete from delayed as d using due
        where d.queue = due.queue and d.wait = due.wait and d.due = due.due and d.id = due.id
        returning d.wait, d.id, d.lane
    ), arrived as (
        insert into ready (lane, id) select lane, id from gone
    ), sums as (
        select lane, count(*) as ready, count(*) filter (where wait = 1) as scheduled,
               count(*) filter (where wait = 2) as retrying, count(*) filter (where wait > 2) as parked,
               (array_agg(id order by id))[1] as low
        from gone group by lane
    ), counted as (
        update lane as s
        set ready = s.ready + v.ready, scheduled = s.scheduled - v.scheduled, retrying = s.retrying - v.retrying,
            parked = s.parked - v.parked, back = least(s.back, v.low), is_open = s.aside = 0
        from sums as v where s.id = v.lane
        returning s.tenant
    )
    update tenant as t set ringed = true, finish = greatest(t.finish, (select q.clock from queue as q where q.id = number))
    where t.id in (select c.tenant from counted as c) and not t.ringed and t.blocked = 0;
    update queue as q set due_lows = array(
        select greatest(lows[w], least(now + 1, (
            select d.due from delayed as d where d.queue = number and d.wait = w and d.due >= lows[w] order by d.due limit 1
        ))) from generate_series(1, 4) as w order by w
    ) where q.id = number;
end
$$;

-- Take the turn for a claim of these queues.
create function begin_claim(since pg_snapshot, queues int8[], now int8, most int8) returns pg_snapshot language plpgsql as $$
declare
    counted pg_snapshot := take_turn(since);
    number int8;
begin
    foreach number in array queues loop
        perform promote(number, now, most);
    end loop;
    return counted;
end
$$;

-- Returns who may be next in a queue, after a place in its ring, with open lanes and limiters; besides these the tenants and
-- limiters that somebody is about to give slots back to. Rows of five kinds: 0 the queue with its own limiter and with when there
-- may be more, 1 limiters behind which something may return, 2 tenants, 3 lanes, 4 limiters.
create function candidates(
    number int8, most int8, after_load int8, after_finish int8, after_name text, now int8, freed int8[], freed_limiters int8[],
    is_counting boolean
) returns table (
    kind int4, a int8, b int8, c int8, d int8, e int8, f int8, g int8, h int8, i int8, j int8, k int8, l int8, m int8,
    weight float8, rate_window float8, meter text, place tid, fresh uuid, back uuid, name text
) language plpgsql as $$
begin
    -- Now and then somebody looks whether those who wait have become a crowd.
    if is_counting and (select count(*) from (
        select 1 from tenant as t where t.queue = number and t.ringed and not t.is_crowd limit 256
    ) as few) = 256 then
        update tenant as t set is_crowd = true where t.queue = number and t.ringed and not t.is_crowd;
    end if;
    return query
    with first as materialized (
        select t.* from (
            (select v.ctid as place, v.* from tenant as v
             where v.queue = number and v.ringed and not v.is_crowd
               and (v.load, v.finish, v.name) > (after_load, after_finish, after_name))
            union all
            (select v.ctid as place, v.* from tenant as v
             where v.queue = number and v.ringed and v.is_crowd
               and (v.its_load, v.its_finish, v.name) > (after_load, after_finish, after_name)
             order by v.its_load, v.its_finish, v.name limit most)
        ) as t order by t.load, t.finish, t.name limit most
    ), asked as materialized (
        select 1 as is_next, first.* from first
        union all
        select 0, t.ctid, t.* from tenant as t where t.id = any (freed) and t.id <> all (array(select first.id from first))
    ), open as materialized (                -- one lane more than a claim looks at, so that it knows of others
        select t.id as tenant, s.*
        from asked as t cross join lateral (
            select lane.id, lane.priority, lane.served, lane.ready, lane.task_limiter, lane.dependency_limiter,
                   lane.group_limiter, lane.ctid as place, lane.low, lane.back
            from lane where lane.tenant = t.id and lane.is_open order by lane.priority, lane.served limit 65
        ) as s
        where t.ringed or t.blocked = 1
    )
    select 0, q.clock, q.last, q.streak, q.last_at, q.other_at, q.pauses, o.id, o.permits, o.max_running, o.rate_count,
           o.running,
           first_due(number),
           least(
               (select v.back_at from limiter as v where v.back_at is not null order by v.back_at limit 1),
               (select v.back_at from tenant as v where v.back_at is not null order by v.back_at limit 1)
           ), null::float8, o.rate_window, o.meter, o.ctid, null::uuid, null::uuid, null::text
    from queue as q join limiter as o on o.id = q.limiter where q.id = number
    union all
    (select 1, v.id, v.permits, v.max_running, v.rate_count, v.running, v.cursor, null, null, null, null, null, null, null,
            null, v.rate_window, v.meter, null, null, null, null
     from limiter as v where v.back_at <= now order by v.back_at limit 16)
    union all
    select 1, v.id, v.permits, v.max_running, v.rate_count, v.running, v.cursor, null, null, null, null, null, null, null,
           null, v.rate_window, v.meter, null, null, null, null
    from limiter as v where v.id = any (freed_limiters) and v.aside and coalesce(v.back_at > now, true)
    union all
    select 2, t.id, t.permits, t.max_running, t.rate_count, t.running, t.load, t.finish, t.served, t.ringed::int4, t.blocked,
           t.is_next, null, null, t.weight, t.rate_window, t.meter, t.place, null, null, t.name
    from asked as t
    union all
    select 3, s.tenant, s.id, s.priority, s.served, s.ready, s.task_limiter, s.dependency_limiter, s.group_limiter, null, null, null,
           null, null, null, null, null, s.place, s.low, s.back, null
    from open as s
    union all
    select 4, v.id, v.permits, v.max_running, v.rate_count, v.running, null, null, null, null, null, null, null, null,
           null, v.rate_window, v.meter, v.ctid, null, null, null
    from limiter as v where v.id = any (array(
        select s.task_limiter from open as s union select s.dependency_limiter from open as s
        union select s.group_limiter from open as s union select unnest(freed_limiters)
    ));
end
$$;

-- Take so many jobs off each of these lanes, the oldest first, after the annotations that they have.
create function take(lanes int8[], counts int8[], lows uuid[], backs uuid[]) returns table (
    on_lane int8, is_back boolean, taken uuid, with_version int4, from_wait int2, due_at int8, record bytea
) language plpgsql as $$
begin
    return query
    with picked as materialized (
        select v.lane, j.*
        from unnest(lanes, counts, lows, backs) as v (lane, count, low, back)
        cross join lateral (
            select * from (
                (select job.id, job.version, job.wait, job.due, job.rec, null::tid as place from job
                 where job.state = 3 and job.lane = v.lane and job.id > v.low order by job.id limit v.count)
                union all
                (select job.id, job.version, job.wait, job.due, job.rec, r.place
                 from (
                     select ready.id, ready.ctid as place from ready
                     where ready.lane = v.lane and ready.id >= v.back order by ready.id limit v.count
                 ) as r join job on job.id = r.id)
            ) as both_kinds order by both_kinds.id limit v.count
        ) as j
    ), gone as (
        delete from ready where ready.ctid = any (array(select picked.place from picked where picked.place is not null))
    )
    select p.lane, p.place is not null, p.id, p.version, p.wait, p.due, p.rec from picked as p order by p.lane, p.id;
end
$$;

-- Write back what a claim has changed: its lanes, tenants and limiters, the queue's turn (null: nothing was served), and that
-- nobody has to stop these jobs any more, which have ended. What is null stays as it is. Rows are found at the places where
-- the claim has read them, not by their numbers: a snapshot that somebody holds keeps every version that they ever had.
create function carry_out(
    lanes tid[], taken int8[], lows uuid[], backs uuid[], open boolean[], asides int8[], turns int8[],
    tenants tid[], tenant_running int8[], loads int8[], finishes int8[], rings boolean[], blocks int8[], back_ats int8[],
    serves int8[], served_ats int8[], meters text[],
    limiters tid[], limiter_running int8[], limiter_meters text[], limiter_asides boolean[], limiter_back_ats int8[],
    number int8, turn int8[], jobs uuid[]
) returns void language plpgsql as $$
declare
    written int8;
    total int8 := 0;
begin
    update lane as s
    set ready = s.ready - v.taken, low = greatest(s.low, v.low), back = greatest(s.back, v.back), is_open = v.is_open,
        aside = v.aside, served = coalesce(v.served, s.served)
    from unnest(lanes, taken, lows, backs, open, asides, turns) as v (place, taken, low, back, is_open, aside, served)
    where s.ctid = v.place;
    get diagnostics written = row_count;
    total := total + written;
    update tenant as t
    set running = v.running, load = v.load, finish = coalesce(v.finish, t.finish), ringed = coalesce(v.ringed, t.ringed),
        blocked = coalesce(v.blocked, t.blocked), back_at = case when v.ringed is null then t.back_at else v.back_at end,
        served = coalesce(v.served, t.served), served_at = coalesce(v.served_at, t.served_at),
        meter = coalesce(v.meter, t.meter)
    from unnest(tenants, tenant_running, loads, finishes, rings, blocks, back_ats, serves, served_ats, meters)
         as v (place, running, load, finish, ringed, blocked, back_at, served, served_at, meter)
    where t.ctid = v.place;
    get diagnostics written = row_count;
    total := total + written;
    update limiter as g
    set running = v.running, meter = coalesce(v.meter, g.meter), aside = g.aside or v.is_aside,
        back_at = case when v.is_aside then v.back_at else g.back_at end
    from unnest(limiters, limiter_running, limiter_meters, limiter_asides, limiter_back_ats)
         as v (place, running, meter, is_aside, back_at)
    where g.ctid = v.place;
    get diagnostics written = row_count;
    total := total + written;
    if total <> cardinality(lanes) + cardinality(tenants) + cardinality(limiters) then
        raise exception 'a row of a claim was changed in its turn' using errcode = 'serialization_failure';
    end if;
    if turn is not null then
        update queue as q
        set clock = turn[1], last = turn[2], streak = turn[3], last_at = turn[4], other_at = turn[5] where q.id = number;
    end if;
    if cardinality(jobs) > 0 then
        delete from annotation where annotation.id = any (jobs);
    end if;
end
$$;

-- Store one new job that has no key, which is what most calls do, in as few and small statements as it takes.
create function enqueue_one(
    number uuid, place int8, due_at int8, with_version int8, for_wait int8, record bytea, lanes json, now int8
) returns void language plpgsql as $$
declare
    is_ready boolean := coalesce(due_at, 0) <= now;
begin
    insert into job (id, lane, due, version, state, wait, rec)
    values (number, place, due_at, with_version, case when is_ready then 3 else 0 end, for_wait, record)
    on conflict (id) do nothing;
    if not found then
        return;
    end if;
    if exists (select 1 from finished where hi >= number and lo <= number and number = any (finished.ids)) then
        delete from job where id = number;
        return;
    end if;
    insert into ledger (
        lane, queue, tenant, task, dependency, "group", priority, ready, scheduled, retrying, parked, low, high, due)
    select place, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority, is_ready::int4,
           (not is_ready and for_wait in (0, 1))::int4, (not is_ready and for_wait = 2)::int4,
           (not is_ready and for_wait > 2)::int4, number, number, case when not is_ready then due_at end
    from json_to_recordset(lanes) as s (
        queue text, tenant text, task text, dependency text, "group" text, priority int8);
    if not is_ready then
        insert into delayed (queue, wait, due, id, lane)
        values ((lanes->0->>'queue_id')::int8, greatest(for_wait, 1), due_at, number, place);
    end if;
end
$$;

-- Give keys to new jobs, and answer for each job under which id it is known: its own, or that of the job that has the key.
create function take_keys(ids uuid[], stored uuid[], keyed int8[], keys bytea, expiries int8[], now int8)
returns uuid[] language plpgsql as $$
declare
    known uuid[] := ids;
    holder uuid;
    mine uuid;
    number int8;
    place int8;
    key_of bytea;
begin
    -- Always in the same order, so that nobody waits for each other.
    for number, place, key_of in
        select k.number, k.place, substring(keys from (16 * k.place - 15)::int4 for 16)
        from unnest(keyed) with ordinality as k (number, place) order by 3, 1
    loop
        mine := ids[number];
        continue when mine = any (stored);
        loop
            insert into uniq as u (key, id, expires) values (key_of, mine, expiries[place])
            on conflict (key) do update set id = excluded.id, expires = excluded.expires
            where u.expires <= now and u.id <> excluded.id and not exists (select 1 from job where job.id = u.id)
            returning u.id into holder;
            exit when holder is not null;
            select u.id into holder from uniq as u where u.key = key_of;
            exit when holder is not null;
        end loop;
        known[number] := holder;
    end loop;
    return known;
end
$$;

-- Returns which of these jobs, the smallest and the largest id among which are given, have succeeded and are kept.
create function finished_among(wanted uuid[], lowest uuid, highest uuid) returns uuid[] language plpgsql as $$
begin
    return array(
        select done.id from finished cross join lateral unnest(finished.ids) as done (id) join unnest(wanted) as v (id) using (id)
        where finished.hi >= lowest and finished.lo <= highest
    );
end
$$;

-- Store new jobs; answer for each the id under which it is known. Only inserts, so it can be part of any transaction.
-- For each job: its id, lane, when it is due (null: at the moment of its id), version, what it waits for, and where its
-- record begins in `recs`, where all follow each other. For each job that has a key: its number among them, 16 bytes in
-- `keys`, and when the key may be forgotten. `lanes` says what the lanes among them are called, and the smallest and
-- the largest id on each.
create function enqueue(
    ids uuid[], places int8[], dues int8[], versions int8[], waits int8[], starts int8[], recs bytea,
    keyed int8[], keys bytea, expiries int8[], lanes json, now int8
) returns uuid[] language plpgsql set search_path from current
-- In sessions of others as well no plan may depend on what a table held when it was made.
set enable_seqscan = off set enable_hashjoin = on set jit = off as $$
declare
    known uuid[] := ids;
    stored uuid[] := '{}';
    fresh uuid[];
    lowest uuid;
    highest uuid;
    is_old boolean;
begin
    if cardinality(ids) = 1 and cardinality(keyed) = 0 then
        perform enqueue_one(ids[1], places[1], dues[1], versions[1], waits[1], recs, lanes, now);
        return ids;
    end if;
    select min(s.low::text collate "C")::uuid, max(s.high::text collate "C")::uuid into lowest, highest
    from json_to_recordset(lanes) as s (low uuid, high uuid);
    is_old := exists (select 1 from finished where hi >= lowest and lo <= highest);
    if is_old or cardinality(keyed) > 0 then
        stored := array(select id from job where id = any (ids));
        if is_old then
            stored := stored || finished_among(ids, lowest, highest);
        end if;
    end if;
    if cardinality(keyed) > 0 then
        known := take_keys(ids, stored, keyed, keys, expiries, now);
    end if;
    with jobs as (
        insert into job (id, lane, due, version, state, wait, rec)
        select v.id, v.lane, v.due, v.version, case when coalesce(v.due, 0) <= now then 3 else 0 end, v.wait,
               substring(recs from v.start::int4 for (v.next - v.start)::int4)
        from unnest(ids, known, places, dues, versions, waits, starts, starts[2:] || (length(recs) + 1)::int8)
             as v (id, known, lane, due, version, wait, start, next)
        where v.known = v.id and v.id <> all (stored)
        on conflict (id) do nothing
        returning id, lane, due, wait, coalesce(due, 0) <= now as is_ready
    ), names as (
        select * from json_to_recordset(lanes) as s (
            lane int8, queue_id int8, queue text, tenant text, task text, dependency text, "group" text, priority int8,
            low uuid, high uuid)
    ), delays as (
        insert into delayed (queue, wait, due, id, lane)
        select s.queue_id, greatest(j.wait, 1), j.due, j.id, j.lane
        from jobs as j join names as s on s.lane = j.lane where not j.is_ready
    ), sums as (
        select lane, count(*) filter (where is_ready) as ready,
               count(*) filter (where not is_ready and wait in (0, 1)) as scheduled,
               count(*) filter (where not is_ready and wait = 2) as retrying,
               count(*) filter (where not is_ready and wait > 2) as parked,
               min(due) filter (where not is_ready) as due
        from jobs group by lane
    ), counts as (
        insert into ledger (
            lane, queue, tenant, task, dependency, "group", priority, ready, scheduled, retrying, parked, low, high, due)
        select s.lane, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority,
               v.ready, v.scheduled, v.retrying, v.parked, s.low, s.high, v.due
        from sums as v join names as s on s.lane = v.lane
    )
    select array_agg(id) into fresh from jobs;
    if finished_among(fresh, lowest, highest) <> '{}' then
        raise exception 'a job was enqueued again while it ended' using errcode = 'serialization_failure';
    end if;
    return known;
end
$$;
