-- Windows in time. `tables.py` describes the same tables to SQLAlchemy; a test holds the two against each other.

-- The projection: derived from the journal.
create table windows (
    entry text primary key,
    run text not null,
    campaign text not null,
    principal text not null,
    opened_at timestamptz not null,
    undo_by timestamptz not null,
    undo_authority text,
    state text not null check (state in ('open', 'undone', 'lapsed')),
    -- The agenda: when a notifier looks at it next, and what it will do then. Not from the journal, and found again by looking.
    look_at timestamptz not null default 'epoch',
    remind_at timestamptz,
    escalate_at timestamptz
);
create index windows_look on windows (look_at) where state = 'open';
create index windows_campaign on windows (campaign, undo_by);
create index windows_run on windows (run);
create table notices (
    id text primary key,
    campaign text not null,
    entry text not null,
    undo_by timestamptz not null,
    kind text not null check (kind in ('reminder', 'escalation')),
    recipient text not null,
    delivered_at timestamptz not null
);
create index notices_entry on notices (entry);
create index notices_campaign on notices (campaign);
create table lapses (
    entry text not null,
    undo_by timestamptz not null,
    campaign text not null,
    lapsed text not null,
    acknowledged_by text,
    primary key (entry, undo_by)
);
create index lapses_campaign on lapses (campaign);
create table calendars (
    campaign text not null,
    sub text not null,
    calendar bytea not null,
    primary key (campaign, sub)
);
create table reminder_policies (
    campaign text primary key,
    lead_seconds bigint not null,
    escalate_after_seconds bigint not null,
    escalate_to text not null
);
create table plans (
    plan text primary key,
    campaign text not null,
    entries text[] not null
);
create index plans_campaign on plans (campaign);
create table decisions (
    id text primary key,
    campaign text not null,
    entries text[] not null,
    by_sub text not null,
    authority text,
    at timestamptz not null
);
create index decisions_entries on decisions using gin (entries);
create index decisions_campaign on decisions (campaign);

-- The notifier's own truth: messages to people, and which windows each one told of. A rebuild finds them here and sends nothing.
create table outgoing (
    id text primary key, -- says what happened to whom, so that the same is never told twice
    campaign text not null,
    kind text not null,
    recipient text not null,
    payload bytea not null,
    status text not null default 'due' check (status in ('due', 'accepted', 'dead')),
    created_at timestamptz not null default clock_timestamp(),
    due_at timestamptz not null default clock_timestamp(),
    accepted_at timestamptz,
    recorded_at timestamptz -- when the journal got to know that it was accepted
);
create index outgoing_due on outgoing (due_at) where status = 'due';
create index outgoing_unrecorded on outgoing (accepted_at) where accepted_at is not null and recorded_at is null;
create index outgoing_campaign on outgoing (campaign, created_at);
create table told (
    entry text not null,
    undo_by timestamptz not null,
    kind text not null check (kind in ('reminder', 'escalation', 'passed')),
    recipient text not null,
    message text not null references outgoing (id),
    primary key (entry, undo_by, kind, recipient)
);
create index told_message on told (message);
-- Changed roles whose consequences have not been told yet (N9).
create table role_changes (
    id text primary key,
    campaign text not null,
    sub text not null,
    was text not null,
    role text,
    by_sub text not null,
    at timestamptz not null
);

grant select, insert, update, delete on windows, notices, lapses, calendars, reminder_policies, plans, decisions, role_changes
    to takeback_notifier;
grant select, insert, update, delete on outgoing, told to takeback_notifier;
