-- Schema version 1. The tables may stand beside those of an application, so their names begin with reprieve_. Ids of queues,
-- tenants, limiters and lanes never change and are never used again (autoincrement), so a process may cache what an id stands
-- for. The row that a name has may be deleted, and another be made for it: see `lanes_deleted` below.

create table reprieve_queue (
    id              integer primary key autoincrement,
    name            text    not null unique,
    limiter         integer not null,            -- its own limits
    clock           integer not null default 0,  -- virtual time, in millionths of a round
    last_tenant     integer not null default 0,  -- the tenant that was served last
    in_a_row        integer not null default 0,  -- how many jobs it got in a row
    last_served_at  integer not null default 0,
    other_served_at integer not null default 0,  -- when a tenant other than the last was served
    pauses          integer not null default 0,  -- bit 1: schedule, bit 2: retry
    tenants         integer not null default 0   -- rows of its tenants
) strict;
create index reprieve_queue_unused on reprieve_queue (id) where tenants = 0;

create table reprieve_limiter (
    id          integer primary key autoincrement,
    subject     text    not null,
    name        text    not null,
    dependency  text    not null default '',  -- of a tenant_dependency, whose name is that of the tenant
    own         integer not null default 0,   -- bits: permits, max_running, rate, pauses of its own; others: of the default
    permits     integer,                      -- null: open, 0: held, else a step of the ramp
    max_running integer,
    rate_count  integer,
    rate_window real,
    meter       text    not null default '[]',
    running     integer not null default 0,
    blocked_lanes        integer not null default 0,  -- lanes that wait for this limiter; at least 1 if there are any
    last_returned_tenant integer not null default 0,  -- the tenant whose lanes were opened again last
    reopens_at           integer,                     -- when to open them again; 0: at once, null: not by time
    lanes                integer not null default 0,  -- rows of lanes that name it; not counted for a queue
    kept_until           integer not null default 0,  -- while no lane names it: until when its rate counts what it has granted
    unique (subject, name, dependency)
) strict;
create index reprieve_limiter_unused on reprieve_limiter (kept_until) where lanes = 0 and own = 0 and subject <> 'queue';
create index reprieve_limiter_held on reprieve_limiter (id) where permits = 0;
create index reprieve_limiter_reopens on reprieve_limiter (reopens_at) where reopens_at is not null;

create table reprieve_limit_default (         -- written to the rows of names when it changes, and to new ones
    subject     text    not null,
    scope       text    not null,             -- the queue of tenants, the dependency of pairs; '': all
    own         integer not null,             -- as of a limiter; others: those of scope ''
    permits     integer,
    max_running integer,
    rate_count  integer,
    rate_window real,
    pauses      integer not null,
    primary key (subject, scope)
) strict, without rowid;

-- A tenant with an open lane is a candidate or blocked: a statement that ends the one state begins the other. Only a tenant that
-- is neither waits for the next enqueue.
create table reprieve_tenant (
    id          integer primary key autoincrement,
    queue       integer not null,
    name        text    not null,
    own         integer not null default 0,   -- as of a limiter
    weight      real    not null default 1,
    load        integer not null default 0,   -- running / weight, in millionths
    finish      integer not null default 0,   -- virtual time, in millionths of a round
    running     integer not null default 0,
    is_candidate integer not null default 0,  -- may have a job that can be claimed
    blocked     integer not null default 0,   -- 1: by max_running, 2: by rate, 3: held
    permits     integer,
    max_running integer,
    rate_count  integer,
    rate_window real,
    meter       text    not null default '[]',
    reopens_at  integer,                      -- when its rate has room again
    served      integer not null default 0,
    served_at   integer,
    lanes       integer not null default 0,   -- rows of its lanes
    kept_until  integer not null default 0,   -- as of a limiter
    unique (queue, name)
) strict;
create index reprieve_tenant_unused on reprieve_tenant (kept_until) where lanes = 0 and own = 0 and weight = 1;
create index reprieve_tenant_candidates on reprieve_tenant (queue, load, finish, name) where is_candidate = 1;
create index reprieve_tenant_busy on reprieve_tenant (queue, weight) where running > 0 and is_candidate = 0;
create index reprieve_tenant_reopens on reprieve_tenant (reopens_at) where reopens_at is not null;

create table reprieve_lane (                  -- a lane, with the number of its jobs in each state
    id         integer primary key autoincrement,
    queue      integer not null,
    tenant     integer not null,
    task       text    not null,
    dependency text    not null,
    "group"    text    not null,
    priority   integer not null,              -- of the lane: that of its jobs times 2, less 1 if they have an SLA
    task_limiter       integer not null,
    dependency_limiter integer not null,         -- 0: none
    group_limiter      integer not null,         -- 0: none
    pair_limiter       integer not null,         -- of its tenant and dependency together; 0: they have no limits
    ready      integer not null default 0,
    scheduled  integer not null default 0,
    retrying   integer not null default 0,
    parked     integer not null default 0,
    dead       integer not null default 0,
    cancelled  integer not null default 0,
    is_open    integer not null default 0,    -- has ready jobs and waits for no limiter
    blocked_by integer not null default 0,    -- the limiter that it waits for; 0: none
    served     integer not null default 0,    -- the tenant's pick that last took from it
    deadline_span integer,                    -- ms after which its fresh jobs are past their deadline; null: none has one
    swept_until   integer not null default 0, -- jobs that became ready up to then were looked at, whether they have expired
    expires_at    integer,                    -- when to look at the next ones; null: there are none
    unique (tenant, task, dependency, "group", priority)
) strict;
-- Only `is_open` and `served` move an entry of this index; counting jobs does not.
create index reprieve_lane_open on reprieve_lane (tenant, priority, served) where is_open = 1;
create index reprieve_lane_expires on reprieve_lane (expires_at) where expires_at is not null;
create index reprieve_lane_queue on reprieve_lane (queue);
create index reprieve_lane_task on reprieve_lane (task_limiter);
create index reprieve_lane_dependency on reprieve_lane (dependency_limiter) where dependency_limiter <> 0;
create index reprieve_lane_group on reprieve_lane (group_limiter) where group_limiter <> 0;
create index reprieve_lane_pair on reprieve_lane (pair_limiter) where pair_limiter <> 0;
create index reprieve_lane_blocked on reprieve_lane (blocked_by, tenant) where blocked_by > 0;

create table reprieve_name_count (            -- how many jobs of a queue, task or dependency are in each state: the sums of their lanes
    subject   text    not null,
    name      text    not null,
    ready     integer not null,
    scheduled integer not null,
    retrying  integer not null,
    parked    integer not null,
    dead      integer not null,
    cancelled integer not null,
    primary key (subject, name)
) strict, without rowid;

create table reprieve_job (
    id      integer primary key,              -- the time and the low bits of its public id
    lane    integer not null,
    state   integer not null,                 -- 0: waiting or running, 1: dead, 2: cancelled
    version integer not null,                 -- not counting a lease
    wait    integer not null,                 -- what it waits for; may lag behind `ready`
    due     integer not null,
    record  blob    not null                  -- the middle of its public id, and the packed job: stores/record.py
) strict;

create table reprieve_ready (
    lane integer not null,
    at   integer not null,                    -- its SLA, or when the job became ready: jobs are taken in this order
    id   integer not null,
    primary key (lane, at, id)
) strict, without rowid;

create table reprieve_delayed (
    queue integer not null,
    wait  integer not null,
    due   integer not null,
    id    integer not null,
    lane  integer not null,
    tenant      text,                         -- this and what follows only of a job that was tried: of its last failure
    task        text,
    dependency  text,
    code        text,                         -- null: it has none
    fingerprint text,
    primary key (queue, wait, due, id)
) strict, without rowid;
create index reprieve_delayed_tenant on reprieve_delayed (tenant, wait, due, id) where tenant is not null;
create index reprieve_delayed_task on reprieve_delayed (task, wait, due, id) where task is not null;
create index reprieve_delayed_dependency on reprieve_delayed (dependency, wait, due, id) where dependency is not null;
create index reprieve_delayed_code on reprieve_delayed (code, wait, due, id) where code is not null;
create index reprieve_delayed_fingerprint on reprieve_delayed (fingerprint, wait, due, id) where fingerprint is not null;

create table reprieve_expiring (              -- waiting jobs, but for fresh ones with the deadline span of their lane
    at integer not null,                      -- when the job expires, if it waits then; some rows are of jobs that do not wait
    id integer not null,
    primary key (at, id)
) strict, without rowid;

create table reprieve_outbox (                -- jobs on their way to another store
    seq    integer primary key autoincrement, -- never used again, so that a relay cannot remove another row by mistake
    id     text    not null,
    record blob    not null,                  -- the whole job, as a msgpack map
    reason text                               -- why the other store refuses the job; null: it waits
) strict;
create index reprieve_outbox_refused on reprieve_outbox (seq) where reason is not null;

create table reprieve_session (
    id         integer primary key,
    name       text    not null unique,
    expires_at integer not null,
    slots      integer not null,
    prefetch   integer not null default 0,    -- jobs that it fetches ahead
    running    integer not null default 0,
    queues     text    not null default '[]', -- that it serves, a JSON array; empty: all
    heartbeat_at integer not null default 0,  -- when its last heartbeat was sent
    is_dead    integer not null default 0,
    number     integer not null default 0,    -- of its last claim
    results    blob                           -- the results of the changes in its last claim, for a repeat of the call
) strict;

create table reprieve_session_origin (        -- who opened a session; apart, since claims write its row
    id     integer primary key,
    origin blob    not null                   -- stores/session_record.py
) strict;

create table reprieve_lease (                 -- one row for each claim that has jobs which still run
    id   integer primary key,                 -- session << 32 | number of the claim
    at   integer not null,
    jobs blob    not null                     -- {job: [lane, version]}
) strict;

create table reprieve_ended (                 -- dead and cancelled jobs, by the time at which they ended
    queue       integer not null,
    state       integer not null,
    at          integer not null,
    id          integer not null,
    lane        integer not null,
    tenant      text    not null,
    task        text    not null,
    dependency  text    not null,
    death       text    not null,             -- as all that follow: what was counted when the job died
    code        text    not null,
    fingerprint text    not null,
    primary key (queue, state, at, id)
) strict, without rowid;
create index reprieve_ended_at on reprieve_ended (state, at, id);
create index reprieve_ended_tenant on reprieve_ended (tenant, state, at, id);
create index reprieve_ended_task on reprieve_ended (task, at, id) where state = 1;
create index reprieve_ended_dependency on reprieve_ended (dependency, at, id) where state = 1;
create index reprieve_ended_death on reprieve_ended (death, at, id) where state = 1;
create index reprieve_ended_code on reprieve_ended (code, at, id) where state = 1;
create index reprieve_ended_fingerprint on reprieve_ended (fingerprint, at, id) where state = 1;
create index reprieve_ended_tenant_fingerprint on reprieve_ended (tenant, fingerprint, at, id) where state = 1;

create table reprieve_cause (                 -- groups of dead jobs, and of failures that jobs survived: stores/causes.py
    fate     integer not null,                -- 0: dead jobs, 1: failures
    kind     text    not null,
    scope    text    not null,
    name     text    not null,
    count    integer not null,                -- of failures: in the hours that are kept
    first_at integer not null,                -- this and the sample are kept of failures only
    last_at  integer not null,
    sample   text    not null,                -- the public id of a job
    primary key (fate, kind, scope, name)
) strict, without rowid;
create index reprieve_cause_count on reprieve_cause (fate, kind, scope, count, name);
create index reprieve_cause_last on reprieve_cause (fate, kind, scope, last_at, name);
create index reprieve_cause_empty on reprieve_cause (count) where count <= 0;

create table reprieve_cause_hour (            -- deaths and failures by the hour, but for kind h, which has those of kind p
    fate  integer not null,
    kind  text    not null,
    scope text    not null,
    name  text    not null,
    hour  integer not null,                   -- since 1970
    count integer not null,
    primary key (fate, kind, scope, name, hour)
) strict, without rowid;
create index reprieve_cause_hour_hour on reprieve_cause_hour (fate, hour);

create table reprieve_finished (              -- succeeded jobs, one row for each settlement
    seq     integer primary key,
    queue   integer not null,
    at      integer not null,
    count   integer not null,
    lowest  integer not null,                 -- the smallest id in this row
    highest integer not null,                 -- the largest id in this row
    newest  integer not null,                 -- the largest id in this and all rows before it
    ids     blob    not null,                 -- 8 bytes each
    jobs    blob    not null                  -- a msgpack array of whole jobs
) strict;
create index reprieve_finished_queue on reprieve_finished (queue, seq, count);
create index reprieve_finished_ids on reprieve_finished (highest, lowest);

create table reprieve_unique_key (
    key        blob    primary key,           -- the hash of the key, its task and its tenant
    id         text    not null,              -- the public id of the job that has it
    job        integer not null,              -- the id of that job's row
    expires_at integer not null               -- when the key is free again, unless the job's row is still there
) strict, without rowid;
create index reprieve_unique_key_expires on reprieve_unique_key (expires_at);

create table reprieve_annotation (            -- of running jobs
    id       integer primary key,
    cancel   blob,                            -- the cancel request: who asks for it, and why
    progress blob
) strict;

create table reprieve_result (id integer primary key, expires_at integer not null, value blob not null) strict;

create index reprieve_result_expires on reprieve_result (expires_at);

create table reprieve_event (
    seq     integer primary key autoincrement,
    at      integer not null,
    job     integer,                          -- null: a notice, which is of no job
    version integer not null,
    data    blob    not null                  -- stores/event_record.py
) strict;
create index reprieve_event_at on reprieve_event (at);
create index reprieve_event_job on reprieve_event (job) where job is not null;  -- and by seq, as every index

create table reprieve_audit (                 -- what people did; rows are never updated, and deleted only by their age
    seq    integer primary key autoincrement,
    at     integer not null,
    actor  text    not null,
    kind   text    not null,                  -- of the subject
    name   text    not null,                  -- of the subject
    tenant text    not null,                  -- '': of no tenant
    packed blob    not null                   -- the whole entry: stores/audit_pages.py
) strict;
create index reprieve_audit_at on reprieve_audit (at, seq);
create index reprieve_audit_subject on reprieve_audit (kind, name, at, seq);
create index reprieve_audit_actor on reprieve_audit (actor, at, seq);
create index reprieve_audit_tenant on reprieve_audit (tenant, at, seq);

create table reprieve_failure (               -- what the failures with one fingerprint look like
    id           integer primary key,
    fingerprint  text    not null unique,
    last_seen_at integer not null,
    packed       blob    not null
) strict;
create index reprieve_failure_seen on reprieve_failure (last_seen_at);

create table reprieve_series (                -- lines of series: core/series.py
    step    integer not null,                 -- 0: a minute, 1: ten minutes, 2: an hour
    at      integer not null,                 -- when the bucket of time begins
    subject integer not null,                 -- 0: all, 1: queue, 2: task, 3: dependency, 4: tenant
    name    text    not null,
    packed  blob    not null,
    primary key (step, at, subject, name)
) strict, without rowid;

create table reprieve_series_delta (          -- what was counted and is not in the lines yet, a row for each write
    seq    integer primary key,
    packed blob    not null
) strict;

create table reprieve_series_enqueued (       -- enqueues that are not in the lines yet
    minute integer not null,                  -- since 1970
    lane   integer not null,
    count  integer not null,
    primary key (minute, lane)
) strict, without rowid;

create table reprieve_entry (
    key        text    primary key,
    version    integer not null,
    value      blob    not null,
    expires_at integer                        -- null: never
) strict, without rowid;
create index reprieve_entry_expires on reprieve_entry (expires_at) where expires_at is not null;

create table reprieve_entry_change (          -- the last changes of entries, also deletions
    number integer primary key,               -- the version of an entry that was set
    key    text    not null,
    stamp  integer not null                   -- random, of the write: a file that was restored gives numbers again
) strict;
create index reprieve_entry_change_stamp on reprieve_entry_change (stamp);

create table reprieve_compatibility (         -- one row: which releases can use the store
    oldest_schema  integer not null,          -- the lowest schema version whose releases can
    oldest_release text    not null,          -- the first release that knows it
    migrated_by    text    not null           -- the release that wrote this row
) strict;

create table reprieve_counter (name text primary key, value integer not null) strict, without rowid;
-- lanes_deleted: how often lanes were deleted. A process that knows another number must look up names again.
-- events_pruned: up to which position events may have been deleted.
-- names_checked_at, names_reached: when the last search for lanes without jobs began, and the last lane that it read; -1: all.
insert into reprieve_counter values ('schema', 0), ('node', 0), ('session', 0), ('entry', 0), ('finished', 0),
    ('lanes_deleted', 0), ('names_checked_at', 0), ('names_reached', -1), ('events_pruned', 0);
