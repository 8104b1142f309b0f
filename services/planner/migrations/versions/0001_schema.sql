-- The planner's schema: a projection of the journal and nothing else. `takeback rebuild planner` drops all of it and reads the
-- journal again; so no column holds a time or a number that did not come with an event.

create table positions (
    stream text primary key,
    seq bigint not null,
    hash text not null
);
create table members (
    campaign text not null,
    sub text not null,
    role text not null check (role in ('owner', 'approver', 'member')),
    primary key (campaign, sub)
);
create table agents (
    campaign text not null,
    name text not null,
    memory text not null check (memory in ('yes', 'no', 'unknown')),
    primary key (campaign, name)
);
create table runs (
    run text primary key,
    campaign text not null,
    agent text not null,
    principal text not null
);
create table entries (
    entry text primary key,
    campaign text not null,
    run text not null,
    seq bigint not null, -- of its first published record: the order of what happened in the run
    at timestamptz not null, -- of that record
    interaction text,
    kind text not null,
    status text not null,
    agent text not null,
    data text not null -- {entry, host, matchable, resources}, as of its last event
);
create index entries_run on entries (run, seq);
create index entries_interaction on entries (campaign, interaction) where interaction is not null;
create index entries_time on entries (campaign, at);
create table entry_resources (
    campaign text not null,
    resource text not null,
    entry text not null references entries on delete cascade,
    primary key (campaign, resource, entry)
);
create index entry_resources_entry on entry_resources (entry);
create table entry_values (
    campaign text not null,
    hash text not null, -- of a telling value in the arguments
    entry text not null references entries on delete cascade,
    primary key (campaign, hash, entry)
);
create index entry_values_entry on entry_values (entry);
create table confirmations (
    link text primary key,
    campaign text not null,
    entry text not null,
    depends_on text not null,
    by_sub text not null,
    at timestamptz not null
);
create index confirmations_entry on confirmations (entry);
create table plan_facts ( -- what was said about a plan; its state is folded from them
    plan text not null,
    stream text not null,
    seq bigint not null,
    campaign text not null,
    type text not null,
    supersedes text, -- the plan in whose place this one was proposed
    at timestamptz not null,
    data text not null,
    primary key (plan, stream, seq)
);
create index plan_facts_supersedes on plan_facts (supersedes) where supersedes is not null;
create index plan_facts_stream on plan_facts (stream);
create table plan_targets ( -- which plans take an entry back
    entry text not null,
    plan text not null,
    stream text not null,
    primary key (entry, plan)
);

grant usage on schema planner to takeback_planner;
grant select, insert, update, delete, truncate on all tables in schema planner to takeback_planner;
