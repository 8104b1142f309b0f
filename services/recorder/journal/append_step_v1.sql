-- append_step_v1: append_v1 for a group of one unit that is a call's plain step: one record about one entry, which it makes or takes
-- further. An agent that works alone makes little else. The rules and their order are those of append_v1, and a test plays the
-- same steps through both; without arrays to go through, this one costs the database half as much.
--
-- One row comes back: where the record stands, or why the step was `refused`. This file replaces what an earlier one made.
drop function if exists append_step_v1;
create function append_step_v1(
    locks bigint[], its_stream text, its_campaign text, its_record text, its_type text, its_body bytea, is_published boolean,
    its_id text, expected text[], its_status text, its_interaction text, its_server text, its_operation text, its_tier text,
    its_kind text, its_principal text, its_agent text, its_key text, is_write boolean, its_hash text,
    lease_seconds double precision, concludes boolean, used text[], used_as text[], used_at text[], must_be_open boolean,
    fence_key text, fence_expect bigint, steady_campaign text, steady_version bigint, held_in text, checked text[],
    -- Last and with a default: recorders of the release before do not say it, and write while they are replaced.
    steady_fetched boolean default false)
returns table (unit integer, refused text, detail text, fence bigint, stream text, seq bigint,
               at timestamptz, hash bytea, previous_hash bytea, after bigint, label integer)
language plpgsql as $$
#variable_conflict use_column
declare
    now_at timestamptz; run_campaign text; run_status text; labels integer; published_seq bigint;
    was text; writer text; held text;
begin
    perform pg_advisory_xact_lock(number) from unnest(locks) as number;
    select s.campaign, s.status, s.seq + 1, s.hash, s.published_seq, s.labels, greatest(s.at, clock_timestamp())
        into run_campaign, run_status, seq, previous_hash, published_seq, labels, now_at
        from streams as s where s.stream = its_stream for update;

    -- Everything is locked: from here on nobody else changes what is read.
    select (select e.status from entries as e where e.id = its_id),
           (select e.id from entries as e
            where e.serial_key = its_key and e.status = 'pending' and e.write and e.serial_key is not null and e.id <> its_id),
           (select h.resource from holds as h where h.campaign = held_in and h.resource = any (checked) limit 1),
           coalesce((select f.value from fences as f where f.serial_key = fence_key), 0)
        into was, writer, held, fence;
    refused := case
        when steady_campaign is not null and (
                not exists (select from streams as s where s.stream = steady_campaign and s.seq = steady_version)
                or exists (select from entries as d
                           where d.campaign = steady_campaign and d.status = 'in_doubt' and d.write)
                or (steady_fetched and exists (select from approvals as a where a.run = its_stream and a.fetched_at is null))
            ) then 'unsteady'
        when run_status is null then 'stream-missing'
        when must_be_open and run_status <> 'open' then 'run-' || run_status
        when (expected is null) <> (was is null) or was <> all (expected) then 'status-changed'
        when its_status = 'pending' and is_write and writer is not null then 'writer-pending'
        when held is not null then 'reversal-running'
        when fence_expect <> fence then 'fence-moved' end;
    unit := 0;
    if refused is not null then
        detail := case refused
            when 'unsteady' then steady_campaign
            when 'status-changed' then coalesce(was, 'absent')
            when 'writer-pending' then writer
            when 'reversal-running' then held
            when 'fence-moved' then fence::text
            else its_stream end;
        fence := null; seq := null; previous_hash := null;
        return next;
        return;
    end if;

    -- From here on it is written.
    stream := its_stream;
    at := now_at;
    fence := case when fence_key is not null then fence + 1 end;
    label := case when expected is null then labels + 1 end;
    after := case when is_published then published_seq end;
    hash := sha256(previous_hash || int4send(1) || convert_to('1', 'UTF8')
        || int4send(octet_length(run_campaign)) || convert_to(run_campaign, 'UTF8')
        || int4send(octet_length(its_stream)) || convert_to(its_stream, 'UTF8')
        || int4send(octet_length(seq::text)) || convert_to(seq::text, 'UTF8')
        || int4send(octet_length(its_record)) || convert_to(its_record, 'UTF8')
        || int4send(octet_length(its_type)) || convert_to(its_type, 'UTF8')
        || int4send(27) || convert_to(to_char(now_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'UTF8')
        || sha256(its_body));
    insert into records (stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published)
        values (its_stream, seq, its_record, run_campaign, its_type, now_at, previous_hash, hash, its_body, its_id, label, after,
                is_published);
    update streams as s set
        seq = append_step_v1.seq, hash = append_step_v1.hash, at = now_at, labels = coalesce(label, s.labels),
        published_seq = case when is_published then append_step_v1.seq else s.published_seq end,
        published_hash = case when is_published then append_step_v1.hash else s.published_hash end,
        published_at = case when is_published then now_at else s.published_at end
        where s.stream = its_stream;
    if is_published then
        insert into outbox (id, stream, seq, at) values (its_record, its_stream, seq, now_at);
    end if;
    if expected is null then
        insert into entries (
            id, run, campaign, interaction, server, operation, tier, kind, principal, agent, status, serial_key, write,
            arguments_hash, label, view_seq, view, lease_until, created_at, concluded_at)
            values (its_id, its_stream, its_campaign, its_interaction, its_server, its_operation, its_tier, its_kind,
                    its_principal, its_agent, its_status, its_key, is_write, its_hash, label, seq, its_body,
                    now_at + make_interval(secs => lease_seconds), now_at, case when concludes then now_at end);
    else
        update entries as e set
            status = its_status, serial_key = its_key, write = is_write, view_seq = append_step_v1.seq, view = its_body,
            lease_until = now_at + make_interval(secs => lease_seconds),
            concluded_at = case when concludes then coalesce(e.concluded_at, now_at) end
            where e.id = its_id;
    end if;
    if used is not null then
        insert into entry_resources (entry, resource, role, campaign, version)
            select its_id, u.resource, u.role, its_campaign, u.version
            from unnest(used, used_as, used_at) as u (resource, role, version)
            on conflict (entry, resource, role) do update set version = excluded.version;
    end if;
    if fence_key is not null then
        insert into fences (serial_key, value) values (fence_key, fence)
            on conflict (serial_key) do update set value = excluded.value;
    end if;
    return next;
end $$;

revoke all on function append_step_v1 from public;
grant execute on function append_step_v1 to takeback_recorder;
