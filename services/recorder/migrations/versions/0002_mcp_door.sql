-- When the answer of an asked call reached its caller: until then the same call again is a retry, after it a new one (S13).
alter table approvals add column fetched_at timestamptz;
create index approvals_unfetched on approvals (run) where fetched_at is null;

-- The place of an operation in its server's own list, so that the list reads the same through the door.
alter table operations add column place integer not null default 0;
