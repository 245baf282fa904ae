-- The first layout. Numbers of queues, tenants, gates and shelves are made from their names, so whoever enqueues need not look
-- them up, and two who make the same one at once make the same.

create table queue (
    id       int8 primary key,
    name     text not null,
    gate     int8 not null,               -- its own limits
    clock    int8 not null default 0,     -- virtual time, in millionths of a round
    last     int8 not null default 0,     -- the tenant that was served last
    streak   int8 not null default 0,     -- and how often in a row
    last_at  int8 not null default 0,
    other_at int8 not null default 0,     -- when a tenant other than the last was served
    pauses   int8 not null default 0      -- bit 1: schedule, bit 2: retry
) with (fillfactor = 50);

create table gate (
    id          int8 primary key,
    subject     text not null,
    name        text not null,
    permits     int8,                     -- null: open, 0: held, else a step of the ramp
    max_running int8,
    rate_count  int8,
    rate_window float8,
    meter       text not null default '[]',
    running     int8 not null default 0,
    aside       boolean not null default false,                  -- whether shelves are set aside because of this gate
    cursor      int8 not null default -9223372036854775808,      -- the tenant whose shelves returned last
    back_at     int8                                             -- when to look at what is set aside
) with (fillfactor = 50);
create index gate_back on gate (back_at) where back_at is not null;

create table tenant (
    id          int8 primary key,
    queue       int8 not null,
    name        text not null,
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
    served_at   int8
) with (fillfactor = 50);
create index tenant_ring on tenant (queue, load, finish, id) where ringed;
create index tenant_busy on tenant (queue) where running > 0 and not ringed;
create index tenant_back on tenant (back_at) where back_at is not null;

create table shelf (                      -- the jobs of one priority in a lane, counted
    id              int8 primary key,
    queue           int8 not null,
    tenant          int8 not null,
    queue_name      text not null,
    tenant_name     text not null,
    task            text not null,
    dependency      text not null,
    "group"         text not null,
    priority        int8 not null,
    task_gate       int8 not null,
    dependency_gate int8 not null,        -- 0: none
    group_gate      int8 not null,        -- 0: none
    ready           int8 not null default 0,
    scheduled       int8 not null default 0,
    retrying        int8 not null default 0,
    parked          int8 not null default 0,
    dead            int8 not null default 0,
    low             uuid not null default '00000000-0000-0000-0000-000000000000',    -- fresh jobs up to it were taken
    back            uuid not null default 'ffffffff-ffff-ffff-ffff-ffffffffffff',    -- no row of `ready` is before it
    is_open         boolean not null default false,              -- has ready jobs and waits for no gate
    aside           int8 not null default 0,                     -- the gate that it waits for
    served          int8 not null default 0                      -- the tenant's pick that last took from it
) with (fillfactor = 50);
create index shelf_open on shelf (tenant, priority, served) where is_open;
create index shelf_aside on shelf (aside, tenant) where aside <> 0;

-- A job's row is written when it comes and deleted when it has succeeded; that it runs is known from its lease.
create table job (
    id      uuid not null primary key with (fillfactor = 100),
    shelf   int8 not null,
    due     int8,                         -- null: the moment of its id
    version int4 not null,                -- not counting a lease
    state   int2 not null,                -- 0: waiting or running, 1: dead, 2: cancelled, 3: the same as 0, and fresh
    wait    int2 not null,                -- what it waits for; may lag behind `ready`
    rec     bytea not null
);
alter table job alter rec set storage external;
-- A fresh job was ready when it came, and nothing but a claim has happened to it. Whether one has, the low mark of its shelf
-- tells, so that neither an enqueue nor a claim writes more than it must.
create index job_fresh on job (shelf, id) with (fillfactor = 100) where state = 3;

-- Jobs that are ready once more, or became so late: all that are not fresh, and fresh ones that came when others, made
-- after them, were taken already.
create table ready (shelf int8 not null, id uuid not null, primary key (shelf, id));

create table delayed (
    queue int8 not null,
    wait  int8 not null,
    due   int8 not null,
    id    uuid not null,
    shelf int8 not null,
    primary key (queue, wait, due, id)
);

-- What enqueues have added and no turn has counted yet. Whoever enqueues writes nothing that others write, so that a
-- transaction of an application that is left open keeps nobody from anything.
create table ledger (
    xid        xid8 not null default pg_current_xact_id(),
    shelf      int8 not null,
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
    high       uuid not null              -- the largest id among them
);
create index ledger_xid on ledger (xid);

create table session (
    id         int8 generated always as identity primary key,
    name       text    not null unique,
    expires_at int8    not null,
    slots      int8    not null,
    is_dead    boolean not null default false,
    number     int8    not null default 0,                       -- of the last claim
    answers    bytea                                             -- and what its changes were answered with
) with (fillfactor = 50);

create table lease (                      -- one row for each claim
    session int8  not null,
    number  int8  not null,
    at      int8  not null,
    jobs    bytea not null,               -- {job: [shelf, version]}
    primary key (session, number)
) with (toast_tuple_target = 8160);
alter table lease alter jobs set storage external;

create table ended (                      -- the dead and the cancelled
    queue       int8 not null,
    state       int8 not null,
    at          int8 not null,
    id          uuid not null,
    shelf       int8 not null,
    death       text not null,
    code        text not null,
    fingerprint text not null,
    primary key (queue, state, at, id)
);

create table finished (                   -- succeeded jobs, one row for each settlement
    seq   int8 generated always as identity primary key,
    queue int8 not null,
    at    int8 not null,
    count int8 not null,
    lo    uuid not null,                  -- the smallest and
    hi    uuid not null,                  -- the largest id in it
    ids   uuid[] not null,
    jobs  bytea not null
);
alter table finished alter jobs set storage external, alter ids set storage external;
create index finished_queue on finished (queue, seq);
create index finished_hi on finished (hi);

create table uniq (
    key     bytea primary key,
    id      uuid not null,                -- the job that has it
    expires int8 not null
);
create index uniq_expires on uniq (expires);

create table mark (id uuid primary key, cancel boolean not null, progress bytea);

create table result (id uuid primary key, expires_at int8 not null, value bytea not null);
create index result_expires on result (expires_at);

create table event (
    seq     int8 generated always as identity primary key,
    at      int8 not null,
    job     uuid not null,
    version int8 not null,
    data    bytea not null
);
create index event_at on event (at);
create index event_job on event (job, version);

create table cell (key text collate "C" primary key, version int8 not null, value bytea not null);
create sequence cell_version;

-- Make the number of something from its names, as the clients do.
create function number_of(variadic names text[]) returns int8 language sql immutable as $$
    select ('x' || encode(substring(sha256(convert_to(array_to_string(names, chr(1)), 'UTF8')) for 8), 'hex'))::bit(64)::int8
$$;

-- Make the queues, tenants, gates and shelves that rows of the ledger speak of.
create function make_shelves(rows ledger[]) returns void language plpgsql as $$
begin
    insert into gate (id, subject, name)
    select number_of('gate', v.subject, v.name), v.subject, v.name
    from unnest(rows) as r, lateral (values
        ('queue', r.queue), ('task', r.task), ('dependency', r.dependency), ('group', r."group")
    ) as v (subject, name)
    where v.name <> '' group by v.subject, v.name
    on conflict (id) do nothing;

    insert into queue (id, name, gate)
    select distinct number_of('queue', r.queue), r.queue, number_of('gate', 'queue', r.queue) from unnest(rows) as r
    on conflict (id) do nothing;

    insert into tenant (id, queue, name)
    select distinct number_of('tenant', r.queue, r.tenant), number_of('queue', r.queue), r.tenant from unnest(rows) as r
    on conflict (id) do nothing;

    insert into shelf (id, queue, tenant, queue_name, tenant_name, task, dependency, "group", priority,
                       task_gate, dependency_gate, group_gate)
    select r.shelf, number_of('queue', r.queue), number_of('tenant', r.queue, r.tenant), r.queue, r.tenant,
           r.task, r.dependency, r."group", r.priority, number_of('gate', 'task', r.task),
           case r.dependency when '' then 0 else number_of('gate', 'dependency', r.dependency) end,
           case r."group" when '' then 0 else number_of('gate', 'group', r."group") end
    from unnest(rows) as r
    on conflict (id) do nothing;
end
$$;

-- Let tenants wait for their turn that did not.
create function ring(tenants int8[]) returns void language sql as $$
    update tenant set ringed = true, finish = greatest(finish, (select clock from queue where queue.id = tenant.queue))
    where id = any (tenants) and not ringed and blocked = 0
$$;

-- Whether a session holds a job: leases name their jobs by their sixteen bytes.
create function is_leased(job uuid) returns boolean language sql as $$
    select exists (select 1 from lease where position(uuid_send(job) in lease.jobs) > 0)
$$;

-- Put fresh jobs where they are found that are before the low marks of their shelves and were not taken.
create function shelve_late(rows ledger[]) returns void language plpgsql as $$
begin
    insert into ready (shelf, id)
    select j.shelf, j.id
    from unnest(rows) as r join shelf as s on s.id = r.shelf
    join lateral (
        select job.shelf, job.id from job
        where job.state = 3 and job.shelf = r.shelf and job.id between r.low and least(r.high, s.low)
    ) as j on true
    where r.ready > 0 and r.low <= s.low and not is_leased(j.id)
    on conflict do nothing;
    update shelf as s set back = least(s.back, r.low) from unnest(rows) as r
    where s.id = r.shelf and r.ready > 0 and r.low <= s.low;
end
$$;

-- Take the turn: from here to the end of the transaction nobody else claims, settles or regulates. Then count what came.
-- Of transactions before `since` nothing is left to count; answers the next such moment.
create function take_turn(since xid8) returns xid8 language plpgsql as $$
declare
    counted xid8;
    rows ledger[];
    missing ledger[];
    unringed int8[];
    is_mixed boolean;
    is_late boolean;
begin
    perform pg_advisory_xact_lock(1919250544, ('queue'::regclass::oid::int8 & 2147483647)::int4);
    counted := pg_snapshot_xmin(pg_current_snapshot());
    with gone as (delete from ledger where xid >= since returning *),
    sums as (
        select shelf, queue, tenant, task, dependency, "group", priority, sum(ready)::int8 as ready,
               sum(scheduled)::int8 as scheduled, sum(retrying)::int8 as retrying, sum(parked)::int8 as parked,
               (array_agg(low order by low))[1] as low, (array_agg(high order by high desc))[1] as high
        from gone group by shelf, queue, tenant, task, dependency, "group", priority
    )
    select array_agg(row(null, s.shelf, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority,
                         s.ready, s.scheduled, s.retrying, s.parked, s.low, s.high)::ledger)
    into rows from sums as s;
    if rows is null then
        return counted;
    end if;
    select array_agg(r) filter (where s.id is null),
           bool_or((s.queue_name, s.tenant_name, s.task, s.dependency, s."group", s.priority)
                   <> (r.queue, r.tenant, r.task, r.dependency, r."group", r.priority))
    into missing, is_mixed from unnest(rows) as r left join shelf as s on s.id = r.shelf;
    if is_mixed then
        raise exception 'two lanes have the same number' using errcode = 'data_corrupted';
    end if;
    if missing is not null then
        perform make_shelves(missing);
    end if;
    update shelf as s
    set ready = s.ready + r.ready, scheduled = s.scheduled + r.scheduled, retrying = s.retrying + r.retrying,
        parked = s.parked + r.parked, is_open = s.is_open or (s.aside = 0 and s.ready + r.ready > 0)
    from unnest(rows) as r where s.id = r.shelf;
    select coalesce(bool_or(r.low <= s.low), false), array_agg(distinct t.id) filter (where not t.ringed and t.blocked = 0)
    into is_late, unringed
    from unnest(rows) as r join shelf as s on s.id = r.shelf join tenant as t on t.id = s.tenant where r.ready > 0;
    if is_late then
        perform shelve_late(rows);
    end if;
    if unringed is not null then
        perform ring(unringed);
    end if;
    return counted;
end
$$;

-- Let tenants return whose rate allows it again, and move jobs that are due to their shelves, some of each kind of wait.
create function promote(number int8, now int8, most int8) returns void language plpgsql as $$
declare
    pauses int8 := (select q.pauses from queue as q where q.id = number);
begin
    update tenant as t
    set blocked = 0, ringed = true, back_at = null,
        finish = greatest(t.finish, (select q.clock from queue as q where q.id = t.queue))
    where t.back_at <= now;
    if not exists (select 1 from delayed where queue = number and wait = 1 and due <= now)
        and not exists (select 1 from delayed where queue = number and wait = 2 and due <= now)
        and not exists (select 1 from delayed where queue = number and wait = 3 and due <= now)
        and not exists (select 1 from delayed where queue = number and wait = 4 and due <= now)
    then
        return;
    end if;
    with due as (
        (select * from delayed where queue = number and wait = 1 and due <= now and pauses & 1 = 0 order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 2 and due <= now and pauses & 2 = 0 order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 3 and due <= now order by due, id limit most)
        union all
        (select * from delayed where queue = number and wait = 4 and due <= now order by due, id limit most)
    ), gone as (
        delete from delayed as d using due
        where d.queue = due.queue and d.wait = due.wait and d.due = due.due and d.id = due.id
        returning d.wait, d.id, d.shelf
    ), arrived as (
        insert into ready (shelf, id) select shelf, id from gone
    ), sums as (
        select shelf, count(*) as ready, count(*) filter (where wait = 1) as scheduled,
               count(*) filter (where wait = 2) as retrying, count(*) filter (where wait > 2) as parked,
               (array_agg(id order by id))[1] as low
        from gone group by shelf
    ), counted as (
        update shelf as s
        set ready = s.ready + v.ready, scheduled = s.scheduled - v.scheduled, retrying = s.retrying - v.retrying,
            parked = s.parked - v.parked, back = least(s.back, v.low), is_open = s.aside = 0
        from sums as v where s.id = v.shelf
        returning s.tenant
    )
    update tenant as t set ringed = true, finish = greatest(t.finish, (select q.clock from queue as q where q.id = number))
    where t.id in (select c.tenant from counted as c) and not t.ringed and t.blocked = 0;
end
$$;

-- Take the turn for a claim of these queues.
create function begin_claim(since xid8, queues int8[], now int8, most int8) returns xid8 language plpgsql as $$
declare
    counted xid8 := take_turn(since);
    number int8;
begin
    foreach number in array queues loop
        perform promote(number, now, most);
    end loop;
    return counted;
end
$$;

-- Store new jobs; answer for each the id under which it is known. Only inserts, so it can be part of any transaction.
-- For each job: its id, shelf, when it is due (null: at the moment of its id), version, what it waits for, and the length of
-- its record in `recs`, where all follow each other. For each job that has a key: its number among them, 16 bytes in
-- `keys`, and when the key may be forgotten. `shelves` says what the shelves among them are called.
create function enqueue(
    ids uuid[], places int8[], dues int8[], versions int8[], waits int8[], lengths int8[], recs bytea,
    keyed int8[], keys bytea, expiries int8[], shelves json, now int8
) returns uuid[] language plpgsql set search_path from current set enable_hashjoin = on as $$
declare
    known uuid[] := ids;
    lowest uuid := (select min(f::text collate "C") from unnest(ids) as f)::uuid;
    stored uuid[];
    fresh uuid[];
    holder uuid;
    mine uuid;
    number int8;
    place int8;
begin
    stored := array(select id from job where id = any (ids));
    if exists (select 1 from finished where hi >= lowest) then
        stored := stored || array(
            select f from unnest(ids) as f
            where exists (select 1 from finished where hi >= f and lo <= f and f = any (finished.ids))
        );
    end if;
    if cardinality(keyed) > 0 then
        -- Always in the same order, so that nobody waits for each other.
        for number, place in
            select k.number, k.place from unnest(keyed) with ordinality as k (number, place)
            order by substring(keys from (16 * k.place - 15)::int4 for 16), k.number
        loop
            mine := ids[number];
            continue when mine = any (stored);
            loop
                insert into uniq as u (key, id, expires)
                values (substring(keys from (16 * place - 15)::int4 for 16), mine, expiries[place])
                on conflict (key) do update set id = excluded.id, expires = excluded.expires
                where u.expires <= now and u.id <> excluded.id and not exists (select 1 from job where job.id = u.id)
                returning u.id into holder;
                exit when holder is not null;
                select u.id into holder from uniq as u where u.key = substring(keys from (16 * place - 15)::int4 for 16);
                exit when holder is not null;
            end loop;
            known[number] := holder;
        end loop;
    end if;
    with given as (
        select v.*, substring(recs from (sum(v.length) over (order by v.place) - v.length + 1)::int4 for v.length::int4) as rec
        from unnest(ids, known, places, dues, versions, waits, lengths) with ordinality
             as v (id, known, shelf, due, version, wait, length, place)
    ), new as (
        select distinct on (g.id) g.* from given as g where g.known = g.id and g.id <> all (stored) order by g.id, g.place
    ), jobs as (
        insert into job (id, shelf, due, version, state, wait, rec)
        select id, shelf, due, version, case when coalesce(due, 0) <= now then 3 else 0 end, wait, rec from new
        on conflict (id) do nothing
        returning id, shelf, due, wait, coalesce(due, 0) <= now as is_ready
    ), names as (
        select * from json_to_recordset(shelves) as s (
            shelf int8, queue text, tenant text, task text, dependency text, "group" text, priority int8)
    ), delays as (
        insert into delayed (queue, wait, due, id, shelf)
        select number_of('queue', s.queue), greatest(j.wait, 1), j.due, j.id, j.shelf
        from jobs as j join names as s on s.shelf = j.shelf where not j.is_ready
    ), sums as (
        select shelf, count(*) filter (where is_ready) as ready,
               count(*) filter (where not is_ready and wait in (0, 1)) as scheduled,
               count(*) filter (where not is_ready and wait = 2) as retrying,
               count(*) filter (where not is_ready and wait > 2) as parked,
               (array_agg(id order by id))[1] as low, (array_agg(id order by id desc))[1] as high
        from jobs group by shelf
    ), counts as (
        insert into ledger (shelf, queue, tenant, task, dependency, "group", priority, ready, scheduled, retrying, parked, low, high)
        select s.shelf, s.queue, s.tenant, s.task, s.dependency, s."group", s.priority,
               v.ready, v.scheduled, v.retrying, v.parked, v.low, v.high
        from sums as v join names as s on s.shelf = v.shelf
    )
    select array_agg(id) into fresh from jobs;
    if exists (select 1 from finished where hi >= lowest and finished.ids && fresh) then
        raise exception 'a job was enqueued again while it ended' using errcode = 'serialization_failure';
    end if;
    return known;
end
$$;
