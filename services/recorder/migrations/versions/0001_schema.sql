-- The recorder's schema. `tables.py` describes the same tables to SQLAlchemy; a test holds the two against each other.

-- The journal. Append-only: the runtime role has INSERT and SELECT on it, nothing else.
create table records (
    stream text not null,
    seq bigint not null,
    id text not null,
    campaign text not null,
    type text not null,
    at timestamptz not null,
    previous_hash bytea not null,
    hash bytea not null,
    body bytea not null,
    entry text,
    label integer,
    after bigint,
    published boolean not null,
    primary key (stream, seq, at)
) partition by range (at);
create index records_id on records (id);
create table records_default partition of records default;

-- The months that exist as partitions: the runtime role may not create tables, so it calls this (the sweeper does).
-- A month whose rows already lie in the default partition stays there.
create function ensure_partitions(months_ahead integer default 2) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    month timestamp;
    lower_bound timestamptz;
    upper_bound timestamptz;
    occupied boolean;
    made integer := 0;
begin
    for ahead in 0 .. months_ahead loop
        month := date_trunc('month', now() at time zone 'UTC') + make_interval(months => ahead);
        lower_bound := month at time zone 'UTC';
        upper_bound := (month + interval '1 month') at time zone 'UTC';
        continue when to_regclass(format('recorder.records_%s', to_char(month, 'YYYY_MM'))) is not null;
        execute 'select exists (select from recorder.records_default where at >= $1 and at < $2)'
            into occupied using lower_bound, upper_bound;
        continue when occupied;
        execute format('create table recorder.records_%s partition of recorder.records for values from (%L) to (%L)',
                       to_char(month, 'YYYY_MM'), lower_bound, upper_bound);
        made := made + 1;
    end loop;
    return made;
end $$;
revoke all on function ensure_partitions(integer) from public;
select ensure_partitions(2);

-- Projections, written in the transaction of the records that they derive from (`takeback fsck` re-derives them). No CHECKs on
-- what the hot path writes: PostgreSQL reads their text anew in each statement (append_v1 measured a fifth slower).
create table streams (
    stream text primary key,
    campaign text not null,
    kind text not null,
    status text not null default 'open',
    seq bigint not null default 0,
    hash bytea not null default decode(repeat('00', 32), 'hex'),
    at timestamptz,
    published_seq bigint not null default 0,
    published_hash bytea,
    published_at timestamptz,
    labels integer not null default 0
);
create index streams_moved on streams (campaign, published_at);

create table entries (
    id text primary key,
    run text not null,
    campaign text not null,
    interaction text,
    server text not null,
    operation text not null,
    tier text,
    kind text not null,
    principal text not null,
    agent text not null,
    status text not null,
    serial_key text,
    write boolean not null,
    reverts text,
    arguments_hash text,
    label integer not null,
    view_seq bigint not null,
    view bytea not null,
    lease_until timestamptz,
    created_at timestamptz not null,
    concluded_at timestamptz
);
create unique index entries_label on entries (run, label);
-- The last line of serialization: whatever Redis says, one pending writer per serial key (J19).
create unique index entries_pending_writer on entries (serial_key)
    where status = 'pending' and write and serial_key is not null;
-- One claim per entry (G9).
create unique index entries_claim on entries (reverts)
    where reverts is not null and status in ('pending', 'in_doubt', 'unverified', 'committed');
create index entries_reverts on entries (reverts) where reverts is not null;
create index entries_unsettled on entries (campaign, status)
    where status in ('awaiting_approval', 'pending', 'in_doubt', 'reverting', 'unverified');
create index entries_lease on entries (lease_until) where status = 'pending';
create index entries_interaction on entries (campaign, interaction) where interaction is not null;
create index entries_created on entries (campaign, created_at);

create table entry_resources (
    entry text not null,
    resource text not null,
    role text not null,
    campaign text not null,
    version text,
    primary key (entry, resource, role)
);
create index entry_resources_resource on entry_resources (campaign, md5(resource));

-- What awaits publication. A reference, never a copy.
create table outbox (
    id text primary key,
    stream text not null,
    seq bigint not null,
    at timestamptz not null
);
create index outbox_at on outbox (at, stream, seq);

create table fences (
    serial_key text primary key,
    value bigint not null
) with (fillfactor = 50);

-- Rewritten by every call: room for the next version beside the last one, and dead ones are cleared away soon.
alter table streams set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
alter table fences set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
alter table outbox set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- What decides a call.
create table campaigns (
    id text primary key,
    name text not null,
    serialize text not null check (serialize in ('campaign', 'run', 'resource', 'none')),
    owner text not null,
    created_at timestamptz not null default now()
);
create table members (
    campaign text not null,
    sub text not null,
    role text not null check (role in ('owner', 'approver', 'member')),
    email text,
    primary key (campaign, sub)
);
create index members_sub on members (sub);
create table agents (
    campaign text not null,
    name text not null,
    memory text not null default 'unknown' check (memory in ('yes', 'no', 'unknown')),
    operations jsonb,
    principals jsonb,
    primary key (campaign, name)
);
create table servers (
    campaign text not null,
    name text not null,
    transport jsonb not null,
    manifest jsonb,
    capabilities jsonb,
    changed_at timestamptz not null default now(),
    primary key (campaign, name)
);
create table operations (
    campaign text not null,
    server text not null,
    operation text not null,
    definition jsonb not null,
    source text not null check (source in ('declared', 'manifest', 'none')),
    pin text not null,
    pinned_at timestamptz not null default now(),
    primary key (campaign, server, operation)
);
create table exercised (
    campaign text not null,
    server text not null,
    operation text not null,
    pin text not null,
    entry text,
    at timestamptz not null default now(),
    primary key (campaign, server, operation, pin)
);
create table policies (
    campaign text primary key,
    policy jsonb not null,
    digest text not null,
    changed_by text not null,
    changed_at timestamptz not null default now()
);
create table calendars (
    campaign text not null,
    sub text not null,
    calendar jsonb not null,
    primary key (campaign, sub)
);
create table runs (
    id text primary key,
    campaign text not null,
    agent text not null,
    model text not null,
    principal text not null,
    opened_by text not null,
    opened_by_kind text not null,
    money_cap jsonb,
    worst_case jsonb,
    opened_at timestamptz not null default now(),
    closed_at timestamptz
);
create index runs_campaign on runs (campaign, opened_at);
create table interactions (
    campaign text not null,
    id text not null,
    run text not null,
    primary key (campaign, id)
);
create table approvals (
    id text primary key,
    entry text not null unique,
    campaign text not null,
    run text not null,
    status text not null check (status in ('pending', 'approved', 'denied', 'expired', 'forwarded')),
    document jsonb not null,
    expires_at timestamptz not null,
    created_at timestamptz not null default now(),
    decided_at timestamptz,
    claimed_by text,
    claimed_until timestamptz
);
create index approvals_status on approvals (campaign, status);
create index approvals_due on approvals (status, expires_at) where status in ('pending', 'approved');
create table idempotency (
    sub text not null,
    path text not null,
    key text not null,
    body_hash text not null,
    entry text not null,
    created_at timestamptz not null default now(),
    primary key (sub, path, key)
);
create index idempotency_created on idempotency (created_at);

-- Reversals: the queue (one row for each approved plan, leased by one recorder at a time) and what they hold still.
create table reversals (
    id text primary key,
    campaign text not null,
    status text not null check (status in ('queued', 'running', 'completed', 'stale', 'failed')),
    decision jsonb not null,
    result jsonb,
    claimed_by text,
    claimed_until timestamptz,
    created_at timestamptz not null default now(),
    finished_at timestamptz
);
create index reversals_due on reversals (created_at) where status in ('queued', 'running');
create table holds (
    campaign text not null,
    resource text not null,
    reversal text not null,
    primary key (campaign, resource)
);
create index holds_reversal on holds (reversal);

create table security_log (
    id bigint generated always as identity primary key,
    campaign text not null,
    at timestamptz not null default now(),
    sub text not null,
    kind text not null,
    what text not null,
    detail jsonb
);
create index security_log_campaign on security_log (campaign, id);

-- A campaign's keys, wrapped by master.key: what encrypts its secrets, and what hashes its matchable values.
create table campaign_keys (
    campaign text primary key,
    wrapped bytea not null,
    created_at timestamptz not null default now()
);

-- Least privilege: the journal can be added to and read; the rest is kept current.
grant usage on schema recorder to takeback_recorder;
grant select, insert on records, security_log, campaign_keys to takeback_recorder;
grant select, insert, update on streams, entries, fences to takeback_recorder;
grant select, insert, update, delete on entry_resources, outbox, campaigns, members, agents, servers, operations,
    exercised, policies, calendars, runs, interactions, approvals, idempotency, reversals, holds to takeback_recorder;
grant execute on function ensure_partitions(integer) to takeback_recorder;
