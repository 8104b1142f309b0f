-- What the questions of the journal count, what the review queue is sorted by, and who is signed in to the console.
alter table entries
    add column server text,
    add column operation text,
    add column model text,
    add column undo_kind text,
    add column undo_by timestamptz;
update entries set
    server = document ->> 'server',
    operation = document ->> 'operation',
    model = document ->> 'model',
    undo_kind = document #>> '{undo,kind}',
    undo_by = (document #>> '{undo,undoBy}')::timestamptz
from (select entry as id, convert_from(view, 'UTF8')::jsonb as document from entries) as read
where read.id = entries.entry;
alter table entries
    alter column server set not null,
    alter column operation set not null,
    alter column model set not null,
    alter column undo_kind set not null;
create index entries_questions on entries (campaign, operation, server, model, kind, status);
create index entries_open on entries (campaign, undo_by)
    where status = 'committed' and undo_kind = 'compensate' and kind not in ('read', 'reversal');

-- Entries that were ever taken back, and the category that the newest reversal gave (part of the projection).
create table taken_back (
    entry text primary key,
    campaign text not null,
    plan text not null,
    category text,
    at timestamptz not null
);
create index taken_back_campaign on taken_back (campaign);

-- The notifier's own truth: a session of the console. The cookie's secret is kept as a hash; the person's token is sealed
-- with a key that only the cookie gives, so that the table alone opens nothing.
create table sessions (
    session_hash bytea primary key,
    token bytea not null,
    sub text not null,
    expires_at timestamptz not null
);
create index sessions_expiry on sessions (expires_at);

grant select, insert, update, delete on taken_back, sessions to takeback_notifier;
