-- The applications of one company. Each has a schema of its own, as if each were somebody else's.
create schema if not exists crm;

create table if not exists crm.deals (
    id text primary key,
    customer text not null,
    stage text not null,
    amount numeric(12, 2) not null,
    currency text not null,
    next_step text not null default '',
    edited_by text not null,
    version bigint not null default 1
);

create table if not exists crm.notes (
    deal text primary key references crm.deals,
    summary text not null default '',
    risks text not null default '',
    wishes text not null default '',
    version bigint not null default 1
);

create schema if not exists calendar;
create sequence if not exists calendar.revision;

create table if not exists calendar.meetings (
    id text primary key,
    deal text not null,
    title text not null,
    starts_at timestamptz not null,
    attendees text[] not null,
    version bigint not null default nextval('calendar.revision')
);

-- Letters to attendees, written in the same transaction as the meeting and posted after its commit.
create table if not exists calendar.letters (
    id bigint generated always as identity primary key,
    recipient text not null,
    subject text not null,
    body text not null,
    posted_at timestamptz
);

create schema if not exists payments;

create table if not exists payments.orders (
    id text primary key,
    customer text not null,
    paid numeric(12, 2) not null,
    refunded numeric(12, 2) not null default 0 check (refunded <= paid),
    currency text not null,
    version bigint not null default 1
);

create schema if not exists mail;

create table if not exists mail.sent (
    message_id text primary key,
    recipient text not null,
    subject text not null,
    body text not null,
    sent_at timestamptz not null default now()
);

create schema if not exists capacity;
create sequence if not exists capacity.revision;

create table if not exists capacity.bookings (
    id text primary key,
    deal text not null,
    team text not null,
    days int not null,
    version bigint not null default nextval('capacity.revision')
);

create schema if not exists memory;
create sequence if not exists memory.revision;

create table if not exists memory.notes (
    id text primary key,
    topic text not null,
    note text not null,
    sources text[] not null default '{}',
    written_at timestamptz not null default clock_timestamp(),
    version bigint not null default nextval('memory.revision')
);

-- Every write of a record raises its version: that is what an undo holds its own version against. A record that can be
-- made again after it was deleted begins with a version that none ever had.
create or replace function crm.raise_version() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    return new;
end $$;

create or replace function crm.next_version() returns trigger language plpgsql as $$
begin
    new.version := nextval(format('%I.revision', tg_table_schema)::regclass);
    return new;
end $$;

do $$
declare kind text;
begin
    foreach kind in array array['crm.deals', 'crm.notes', 'payments.orders'] loop
        execute format('create or replace trigger raise_version before update on %s '
                       'for each row execute function crm.raise_version()', kind);
    end loop;
    foreach kind in array array['calendar.meetings', 'capacity.bookings', 'memory.notes'] loop
        execute format('create or replace trigger raise_version before update on %s '
                       'for each row execute function crm.next_version()', kind);
    end loop;
end $$;
