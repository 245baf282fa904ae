-- Schema version 1: tables, indexes, sequences and types. Functions are in functions/, one file each.
--
-- Ids of queues, tenants, limiters and lanes are hashes of their names (functions/hash_id.sql). An enqueue therefore needs no
-- lookup, and two transactions that create the same row create it under the same id.
-- Columns that end in _at are milliseconds since 1970.

create table queue (
    id              int8 primary key,
    name            text not null,
    limiter         int8 not null,                   -- the limiter of the queue itself
    clock           int8 not null default 0,         -- virtual time, in millionths of a round
    last_tenant     int8 not null default 0,         -- the tenant that was served last
    in_a_row        int8 not null default 0,         -- jobs that it was given in a row
    last_served_at  int8 not null default 0,
    other_served_at int8 not null default 0,         -- when a tenant other than last_tenant was served
    pauses          int8 not null default 0,         -- bit 1: scheduled jobs, bit 2: retries
    due_watermarks  int8[] not null default '{0, 0, 0, 0}',      -- per kind of wait: no counted row of `delayed` is due before
    tenants         int8 not null default 0          -- rows of its tenants
) with (fillfactor = 50);
create index queue_unused on queue (id) where tenants = 0;

create table limiter (
    id                   int8 primary key,
    subject              text not null,              -- queue, task, dependency, group or tenant_dependency
    name                 text collate "C" not null,
    dependency           text collate "C" not null default '',   -- of a tenant_dependency, whose name is that of the tenant
    own                  int8 not null default 0,    -- bits: permits, max_running, rate, pauses of its own; others: of the default
    permits              int8,                       -- null: open, 0: held, else the number of jobs that a ramp allows
    max_running          int8,
    rate_count           int8,
    rate_window          float8,                     -- seconds
    meter                text not null default '[]', -- what the rate has counted, as JSON
    running              int8 not null default 0,
    has_blocked_lanes    boolean not null default false,
    last_returned_tenant int8 not null default -9223372036854775808,     -- the tenant whose blocked lanes were opened last
    reopens_at           int8,                       -- when blocked lanes may be opened again; 0: at once
    lanes                int8 not null default 0,    -- rows of lanes that name it; not counted for a queue
    kept_until           int8 not null default 0     -- while no lane names it: until when its rate counts what it has granted
) with (fillfactor = 50);
create index limiter_unused on limiter (kept_until) where lanes = 0 and own = 0 and subject <> 'queue';
create index limiter_name on limiter (subject, name, dependency);
create index limiter_held on limiter (id) where permits = 0;
create index limiter_reopens on limiter (reopens_at) where reopens_at is not null;

create table limit_default (                         -- written to the rows of names when it changes, and to new ones
    subject     text not null,
    scope       text collate "C" not null,           -- the queue of tenants, the dependency of pairs; '': all
    own         int8 not null,                       -- as of a limiter; others: those of scope ''
    permits     int8,
    max_running int8,
    rate_count  int8,
    rate_window float8,
    pauses      int8 not null,
    primary key (subject, scope)
);

create table tenant (
    id             int8 primary key,
    queue          int8 not null,
    name           text collate "C" not null,        -- candidates that are equal otherwise are in the order of its bytes
    own            int8 not null default 0,          -- as of a limiter
    weight         float8 not null default 1,
    load           int8 not null default 0,          -- running / weight, in millionths
    finish         int8 not null default 0,          -- virtual time, in millionths of a round
    running        int8 not null default 0,
    is_candidate   boolean not null default false,   -- may have a job that can be claimed
    blocked        int8 not null default 0,          -- 0: no, 1: max_running is reached, 2: the rate is spent, 3: held
    permits        int8,
    max_running    int8,
    rate_count     int8,
    rate_window    float8,                           -- seconds
    meter          text not null default '[]',
    reopens_at     int8,
    served         int8 not null default 0,          -- jobs that were ever claimed
    served_at      int8,
    lanes          int8 not null default 0,          -- rows of its lanes
    kept_until     int8 not null default 0,          -- as of a limiter
    -- No index contains a column that every claim changes: then a new version of a row stays on its page (HOT update). A claim
    -- reads and sorts all candidates, unless they are a crowd: the rows of a crowd are indexed in the order of the choice.
    is_in_crowd    boolean not null default false,
    crowd_load     int8 generated always as (case when is_in_crowd then load end) stored,
    crowd_finish   int8 generated always as (case when is_in_crowd then finish end) stored,
    is_busy        boolean generated always as (running > 0 and not is_candidate) stored
) with (fillfactor = 50);
create index tenant_name on tenant (queue, name);
create index tenant_candidate on tenant (queue, id) where is_candidate and not is_in_crowd;
create index tenant_crowd on tenant (queue, crowd_load, crowd_finish, name) where is_candidate and is_in_crowd;
create index tenant_busy on tenant (queue) where is_busy;
create index tenant_unused on tenant (kept_until) where lanes = 0 and own = 0 and weight = 1;
create index tenant_reopens on tenant (reopens_at) where reopens_at is not null;

create table lane (                                  -- the waiting jobs of one queue, tenant, task, dependency, group, priority
    id                 int8 primary key,
    queue              int8 not null,
    tenant             int8 not null,
    queue_name         text not null,
    tenant_name        text not null,
    task               text not null,
    dependency         text not null,
    "group"            text not null,
    priority           int8 not null,                -- of the lane: that of its jobs times 2, less 1 if they have an SLA
    task_limiter       int8 not null,
    dependency_limiter int8 not null,                -- 0: none
    group_limiter      int8 not null,                -- 0: none
    pair_limiter       int8 not null,                -- of its tenant and dependency together, a row only if it has limits; 0: none
    ready              int8 not null default 0,
    scheduled          int8 not null default 0,
    retrying           int8 not null default 0,
    parked             int8 not null default 0,
    dead               int8 not null default 0,
    cancelled          int8 not null default 0,
    fresh_watermark    uuid not null default '00000000-0000-0000-0000-000000000000',    -- fresh jobs up to it were taken
    ready_watermark    int8 not null default 9223372036854775807,        -- no row of `ready` became ready before it
    is_open            boolean not null default false,           -- has ready jobs, and no limiter blocks it
    blocked_by         int8 not null default 0,                  -- the limiter that blocks it; 0: none
    served             int8 not null default 0,                  -- tenant.served when a job was last taken from this lane
    deadline_span      int8,                                     -- ms after which its fresh jobs are past their deadline; null: none has one
    swept_until        int8 not null default 0,                  -- fresh jobs enqueued up to then were looked at, whether they have expired
    expires_at         int8                                      -- when to look at the next ones; null: there are none
) with (fillfactor = 50);
create index lane_expires on lane (expires_at) where expires_at is not null;
create index lane_open on lane (tenant, priority, served) where is_open;
create index lane_queue on lane (queue, id);
create index lane_tenant on lane (tenant, id);
create index lane_task on lane (task_limiter, id);
create index lane_dependency on lane (dependency_limiter, id) where dependency_limiter <> 0;
create index lane_group on lane (group_limiter, id) where group_limiter <> 0;
create index lane_pair on lane (pair_limiter, id) where pair_limiter <> 0;
create index lane_blocked on lane (blocked_by, tenant) where blocked_by <> 0;

-- How many jobs of a queue, task or dependency are in each state: the sums of their lanes. Written under the claim lock, with the
-- lanes.
create table name_count (
    subject   text not null,
    name      text not null,
    ready     int8 not null default 0,
    scheduled int8 not null default 0,
    retrying  int8 not null default 0,
    parked    int8 not null default 0,
    dead      int8 not null default 0,
    cancelled int8 not null default 0,
    primary key (subject, name)
) with (fillfactor = 50);

-- The search for lanes without jobs, one row from the first on: when the last one began, and the last lane that it read; null:
-- all lanes.
create table name_search (
    id         int8 primary key check (id = 1),
    checked_at int8 not null,
    reached    int8
);

-- A job's row is written by its enqueue and deleted when the job succeeds. That a job runs is known from its lease alone.
create table job (
    id          uuid not null primary key with (fillfactor = 100),
    lane        int8 not null,
    due_at      int8,                                -- null: the time in its id
    sla_at      int8,                                -- orders it in its lane; null: it has no SLA
    version     int4 not null,                       -- not counting a lease
    state       int2 not null,                       -- 0: waiting or running, 1: dead, 2: cancelled, 3: as 0, and fresh,
                                                     -- 4: set aside, its lane's id is that of another lane
    waiting_for int2 not null,                       -- as in stores/record.py; may lag behind `ready`
    record      bytea not null
);
alter table job alter record set storage external;
-- A fresh job was ready when it was enqueued, and nothing but a claim has happened to it. The watermark of its lane tells
-- whether it was claimed, so neither the enqueue nor the claim writes a row for it elsewhere.
create index job_fresh on job (lane, id) with (fillfactor = 100) where state = 3;

-- Ready jobs that are not fresh, as those with an SLA, which is their ready_at; and fresh jobs that were committed after jobs with a larger id were taken. A statement that
-- inserts rows here lowers the ready watermark of their lanes to the smallest `ready_at`, or they are never found.
create table ready (lane int8 not null, ready_at int8 not null, id uuid not null, primary key (lane, ready_at, id));

-- Jobs that become ready at a time.
create table delayed (
    queue       int8 not null,
    waiting_for int8 not null,
    due_at      int8 not null,
    id          uuid not null,
    lane        int8 not null,
    sla_at      int8,                                -- as in job
    tenant      text collate "C",                    -- this and what follows only of a job that was tried: of its last failure
    task        text collate "C",
    dependency  text collate "C",
    code        text collate "C",                    -- null: it has none
    fingerprint text collate "C",
    primary key (queue, waiting_for, due_at, id)
);
create index delayed_tenant on delayed (tenant, waiting_for, due_at, id) where tenant is not null;
create index delayed_task on delayed (task, waiting_for, due_at, id) where task is not null;
create index delayed_dependency on delayed (dependency, waiting_for, due_at, id) where dependency is not null;
create index delayed_code on delayed (code, waiting_for, due_at, id) where code is not null;
create index delayed_fingerprint on delayed (fingerprint, waiting_for, due_at, id) where fingerprint is not null;

-- When waiting jobs expire, but for fresh ones with the deadline span of their lane. Some rows are of jobs that do not wait.
create table expiring (expires_at int8 not null, id uuid not null, primary key (expires_at, id));

-- Ranges of fresh jobs that do not all have the deadline span of their lane: the next sweep gives them rows in `expiring`.
create table unswept_addition (
    id         int8 generated always as identity primary key,
    lane       int8 not null,
    lowest_id  uuid not null,
    highest_id uuid not null
);

-- What enqueues have added to lanes and no claim has counted yet. An enqueue writes no row that another transaction writes, so
-- an application that leaves its transaction open blocks no worker.
create table uncounted_enqueue (
    xid          xid8 not null default pg_current_xact_id(),
    lane         int8 not null,
    queue        text not null,
    tenant       text not null,
    task         text not null,
    dependency   text not null,
    "group"      text not null,
    priority     int8 not null,
    ready        int8 not null,
    scheduled    int8 not null,
    retrying     int8 not null,
    parked       int8 not null,
    lowest_id    uuid not null,
    highest_id   uuid not null,
    first_due_at int8,                               -- of the jobs that are not ready
    min_span     int8,                               -- ms until the deadlines of ready jobs, at least; null: none has one
    max_span     int8,                               -- at most
    events       json                                -- the enqueues of jobs that tell all; null: of none
);
create index uncounted_enqueue_xid on uncounted_enqueue (xid);

-- Jobs that were added to one lane: rows of uncounted_enqueue, summed. Functions hand it to each other.
create type lane_addition as (
    lane int8, queue text, tenant text, task text, dependency text, "group" text, priority int8,
    ready int8, scheduled int8, retrying int8, parked int8, lowest_id uuid, highest_id uuid, first_due_at int8,
    min_span int8, max_span int8
);

-- Additions to lanes whose id is the hash of other names as well. Their jobs are set aside; `reprieve doctor` names them.
create table hash_collision (
    lane int8, queue text, tenant text, task text, dependency text, "group" text, priority int8,
    ready int8, scheduled int8, retrying int8, parked int8, lowest_id uuid, highest_id uuid, first_due_at int8
);

-- Jobs on their way to another store, in the order of the transactions that sent them. Only a relay changes or removes rows.
create table outbox (
    xid     xid8 not null default pg_current_xact_id(),
    id      uuid not null,
    record  bytea not null,                          -- the whole job
    refusal text,                                    -- why the other store refuses it; null: it waits
    primary key (xid, id)
);
alter table outbox alter record set storage external;
create index outbox_refused on outbox (id) where refusal is not null;

-- Releases whose functions are in this schema; see docs/decisions/0019-postgresql-functions.md.
create table release (
    id        text primary key,                      -- a hash of the names below
    functions text[] not null,
    used_at   timestamptz not null,                  -- updated at most once an hour
    schema_version int8 not null                     -- that it knows
);

create table session (
    id           int8 generated always as identity primary key,
    name         text    not null unique,
    expires_at   int8    not null,
    slots        int8    not null,
    prefetch     int8    not null default 0,         -- jobs that it fetches ahead
    running      int8    not null default 0,
    queues       text    not null default '[]',      -- that it serves, a JSON array; empty: all
    heartbeat_at int8    not null default 0,         -- when its last heartbeat was sent
    origin       bytea,                              -- who opened it: stores/session_record.py
    is_dead      boolean not null default false,
    first_lease  int8    not null default 0,         -- no lease of the session has a smaller claim number
    last_claim   int8    not null default 0,         -- the number of its last claim
    last_results bytea,                              -- what that claim returned for its changes
    release      text    not null                    -- the release whose functions it calls
) with (fillfactor = 50);
create index session_live on session (id) where not is_dead;
create index session_dead on session (id) where is_dead;

create table lease (                                 -- one row for each claim
    session   int8  not null,
    claim     int8  not null,
    leased_at int8  not null,
    jobs      bytea not null,                        -- of each job: its id, its lane and its version, in 16, 8 and 8 bytes
    primary key (session, claim)
) with (toast_tuple_target = 8160);
alter table lease alter jobs set storage external;

create table ended (                                 -- dead and cancelled jobs
    queue       int8 not null,
    state       int8 not null,
    ended_at    int8 not null,
    id          uuid not null,
    lane        int8 not null,
    tenant      text collate "C" not null,
    task        text collate "C" not null,
    dependency  text collate "C" not null,
    death       text collate "C" not null,           -- as all that follow: what was counted when the job died
    code        text collate "C" not null,
    fingerprint text collate "C" not null,
    primary key (queue, state, ended_at, id)
);
create index ended_ended_at on ended (state, ended_at, id);
create index ended_tenant on ended (tenant, state, ended_at, id);
create index ended_task on ended (task, ended_at, id) where state = 1;
create index ended_dependency on ended (dependency, ended_at, id) where state = 1;
create index ended_death on ended (death, ended_at, id) where state = 1;
create index ended_code on ended (code, ended_at, id) where state = 1;
create index ended_fingerprint on ended (fingerprint, ended_at, id) where state = 1;
create index ended_tenant_fingerprint on ended (tenant, fingerprint, ended_at, id) where state = 1;

create table cause (                                 -- groups of dead jobs, and of failures that jobs survived: stores/causes.py
    fate     int8 not null,                          -- 0: dead jobs, 1: failures
    kind     text collate "C" not null,
    scope    text collate "C" not null,
    name     text collate "C" not null,
    count    int8 not null,                          -- of failures: in the hours that are kept
    first_at int8 not null,                          -- this and the sample are kept of failures only
    last_at  int8 not null,
    sample   text not null,                          -- the id of a job
    primary key (fate, kind, scope, name)
) with (fillfactor = 50);
create index cause_count on cause (fate, kind, scope, count, name);
create index cause_last on cause (fate, kind, scope, last_at, name);
create index cause_empty on cause (count) where count <= 0;

create table cause_hour (                            -- deaths and failures by the hour, but for kind h, which has those of kind p
    fate  int8 not null,
    kind  text collate "C" not null,
    scope text collate "C" not null,
    name  text collate "C" not null,
    hour  int8 not null,                             -- since 1970
    count int8 not null,
    primary key (fate, kind, scope, name, hour)
) with (fillfactor = 50);
create index cause_hour_hour on cause_hour (fate, hour);

create table finished (                              -- succeeded jobs, one row for each settlement
    seq         int8 generated always as identity primary key,
    queue       int8 not null,
    finished_at int8 not null,
    kept        int8 not null,                       -- jobs in `jobs`; pruned jobs leave their ids for a while
    lowest_id   uuid not null,
    highest_id  uuid not null,
    ids         uuid[] not null,
    jobs        bytea not null
);
alter table finished alter jobs set storage external, alter ids set storage external;
create index finished_kept on finished (queue, seq) include (kept) where kept > 0;
create index finished_pruned on finished (queue, seq) where kept = 0;
create index finished_id on finished (highest_id, lowest_id);

create table unique_key (
    key        bytea primary key,
    job        uuid not null,                        -- the job that has the key
    expires_at int8 not null
);
create index unique_key_expires on unique_key (expires_at);

create table annotation (id uuid primary key, cancel bytea, progress bytea);
create index annotation_cancel on annotation (id) where cancel is not null;

create table result (id uuid primary key, expires_at int8 not null, value bytea not null);
create index result_expires on result (expires_at);

create sequence event_seq;
create table event (                                 -- a partition for each day, dropped whole when it is pruned
    seq     int8 not null default nextval('event_seq'),
    at      int8 not null,
    job     uuid,                                    -- null: a notice, which is of no job
    version int8 not null,
    data    bytea not null                           -- stores/event_record.py
) partition by range (at);
create index event_seq_at on event (seq);
create index event_at on event (at);
create index event_job on event (job, seq) where job is not null;
-- Days that have no partition of their own.
create table event_other partition of event default;

create table audit (                                 -- what people did; rows are never updated, and deleted only by their age
    seq    int8 generated always as identity primary key,
    at     int8 not null,
    actor  text collate "C" not null,
    kind   text collate "C" not null,                -- of the subject
    name   text collate "C" not null,                -- of the subject
    tenant text collate "C" not null,                -- '': of no tenant
    packed bytea not null                            -- the whole entry: stores/audit_pages.py
);
create index audit_at on audit (at, seq);
create index audit_subject on audit (kind, name, at, seq);
create index audit_actor on audit (actor, at, seq);
create index audit_tenant on audit (tenant, at, seq);

create table event_pruned (                          -- one row from the first on: up to which position events were deleted
    id       int8 primary key check (id = 1),
    position int8 not null
);

create table failure (                               -- what the failures with one fingerprint look like
    fingerprint  text collate "C" primary key,
    last_seen_at int8  not null,
    packed       bytea not null
);

create table series (                                -- lines of series: core/series.py
    step    int2 not null,                           -- 0: a minute, 1: ten minutes, 2: an hour
    at      int8 not null,                           -- when the bucket of time begins
    subject int2 not null,                           -- 0: all, 1: queue, 2: task, 3: dependency, 4: tenant
    name    text collate "C" not null,
    packed  bytea not null,
    primary key (step, at, subject, name)
) with (fillfactor = 70);
create table series_delta (                          -- what was counted and is not in the lines yet, a row for each write
    seq    int8 generated always as identity primary key,
    packed bytea not null                            -- msgpack; JSON, if acquire_claim_lock has counted enqueues
);

create table entry (
    key        text collate "C" primary key,
    version    int8 not null,
    value      bytea not null,
    expires_at int8                                  -- null: never
);
create index entry_expires on entry (expires_at) where expires_at is not null;
create sequence entry_version;
create table entry_change (                          -- the last changes of entries, also deletions
    number int8 primary key,                         -- the version of an entry that was set
    key    text collate "C" not null,
    stamp  int8 not null                             -- random, of the write: a restored database gives numbers again
);
create index entry_change_stamp on entry_change (stamp);
