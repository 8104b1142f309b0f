-- The notifier's schema. `tables.py` describes the same tables to SQLAlchemy; a test holds the two against each other.

-- The projection: dropped and filled again from the journal by `takeback rebuild notifier`.
create table positions (
    stream text primary key,
    seq bigint not null,
    hash text not null
);
create table members (
    campaign text not null,
    sub text not null,
    role text not null check (role in ('owner', 'approver', 'member')),
    email text,
    primary key (campaign, sub)
);
create table agents (
    campaign text not null,
    name text not null,
    primary key (campaign, name)
);
create table runs (
    run text primary key,
    campaign text not null,
    agent text not null,
    principal text not null,
    status text not null check (status in ('open', 'paused', 'closed')),
    closed_at timestamptz
);
create index runs_campaign on runs (campaign);
create table entries (
    entry text primary key,
    run text not null,
    campaign text not null,
    interaction text,
    place integer not null, -- the number in its label: the order of intents in the run
    kind text not null,
    status text not null,
    view bytea not null -- the public entry, as of its last event
);
create index entries_run on entries (run, place);
create index entries_interaction on entries (campaign, interaction) where interaction is not null;
create table acknowledgements (
    id text primary key,
    campaign text not null,
    run text not null,
    entries text[] not null,
    by_sub text not null,
    authority text,
    at timestamptz not null
);
create index acknowledgements_run on acknowledgements (run, at);
create index acknowledgements_campaign on acknowledgements (campaign);

-- The feed: what the live streams carry, numbered by campaign in the order of commits. Kept by a rebuild, trimmed by age.
create table feed_epoch (
    single boolean primary key default true check (single),
    epoch text not null
);
insert into feed_epoch (epoch) values (replace(gen_random_uuid()::text, '-', ''));
create table feed_heads (
    campaign text primary key,
    seq bigint not null
);
create table feed (
    campaign text not null,
    seq bigint not null,
    id text not null,
    type text not null,
    event bytea not null,
    at timestamptz not null default now(),
    primary key (campaign, seq)
);
create unique index feed_id on feed (campaign, id);
create index feed_at on feed (at);
-- How far each stream of the journal has been put into the feed. A record's time tells a restored stream from a replayed one.
create table fed (
    stream text primary key,
    at timestamptz not null,
    seq bigint not null
);

-- The notifier's own truth: what was announced, and what of it JetStream has acknowledged.
create table announcements (
    id text primary key,
    number bigint generated always as identity,
    campaign text not null,
    type text not null,
    event bytea not null,
    created_at timestamptz not null default now(),
    published_at timestamptz
);
create index announcements_due on announcements (number) where published_at is null;

create table tickets (
    ticket_hash bytea primary key,
    sub text not null,
    kind text not null,
    expires_at timestamptz not null
);
create index tickets_expired on tickets (expires_at);
create table idempotency (
    sub text not null,
    path text not null,
    key text not null,
    body_hash text not null,
    answer bytea not null,
    created_at timestamptz not null default now(),
    primary key (sub, path, key)
);
create index idempotency_created on idempotency (created_at);

grant usage on schema notifier to takeback_notifier;
grant select on feed_epoch to takeback_notifier;
grant select, insert, update on announcements to takeback_notifier;
grant select, insert, update, delete on positions, members, agents, runs, entries, acknowledgements, feed_heads, feed, fed,
    tickets, idempotency to takeback_notifier;
