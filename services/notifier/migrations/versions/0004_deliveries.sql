-- The notifier's own truth: who is told over which channel, and what became of it. A rebuild touches neither table.
create table webhooks (
    campaign text not null,
    name text not null,
    channel text not null check (channel in ('webhook', 'chat')),
    url text not null,
    types text[] not null,
    secret bytea not null, -- signs what goes to a webhook; shown once
    disabled text, -- why nothing is sent there any more
    created_by text not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (campaign, name)
);
create table deliveries (
    id text primary key, -- what the receiver drops a repeat by: webhook-id, Message-ID
    campaign text not null,
    channel text not null check (channel in ('email', 'webhook', 'chat')),
    target text not null, -- a webhook's name, or the sub of a person
    type text not null,
    about text not null, -- the event or the message: it goes to a target once
    message text, -- the message to a person that this delivers (outgoing.id)
    payload bytea not null,
    status text not null default 'waiting' check (status in ('waiting', 'accepted', 'dead', 'not_configured')),
    attempts integer not null default 0,
    due_at timestamptz not null default clock_timestamp(), -- while it is being sent: when somebody else may take it
    batch text, -- the delivery whose id the digest carries that this is part of
    error text,
    created_at timestamptz not null default clock_timestamp(),
    concluded_at timestamptz,
    unique (campaign, channel, target, about)
);
create index deliveries_waiting on deliveries (channel, campaign, target, due_at) where status = 'waiting';
create index deliveries_due on deliveries (due_at) where status = 'waiting';
create index deliveries_campaign on deliveries (campaign, status, id);
create index deliveries_batch on deliveries (batch) where batch is not null;
create index deliveries_message on deliveries (message) where message is not null;
create index deliveries_concluded on deliveries (concluded_at) where concluded_at is not null;

grant select, insert, update, delete on webhooks, deliveries to takeback_notifier;
