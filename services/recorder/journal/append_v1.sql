-- append_v1: the way into the journal; a step that is alone takes the shorter one of append_step_v1. One call is one group
-- commit of many units; each unit is written whole or refused alone. Every rule is checked under its lock before the unit's
-- first write, so nothing needs to be rolled back, and the unique indexes stay a last line. Locks, in this order, so that no
-- two callers deadlock: advisory locks (serial keys, idempotency keys, interactions, held resources) by their number, streams
-- by name. An entry changes only under the lock of its stream.
--
-- What the rules ask about is read once for the whole group, kept current in arrays while the units go by, and written back
-- at the end: a handful of statements however many units there are.
--
-- A row comes back for each record written; a refused unit answers one row with `refused` and `detail`.
--
-- Rows of named types are cast to them where they are made: a bare row on its way into an array is written out as text and
-- read in again, bodies and all. This file replaces what an earlier one made.
drop function if exists append_v1(jsonb, bytea[]);
drop function if exists append_v1(jsonb, bytea[], bigint[], text[], text[], text[], text[], text[], text[], jsonb);
drop type if exists append_change_v1, append_row_v1, append_stream_v1, append_unit_v1, append_resource_v1, append_entry_v1,
    append_record_v1;
create type append_record_v1 as (
    stream text, id text, type text, body integer, published boolean, entry text, first boolean);
create type append_entry_v1 as (
    id text, expect text[], status text, run text, campaign text, interaction text, server text, operation text, tier text,
    kind text, principal text, agent text, serial_key text, write boolean, reverts text, arguments_hash text,
    record integer, lease_seconds double precision, concluded boolean);
create type append_resource_v1 as (entry text, resource text, role text, campaign text, version text);
create type append_unit_v1 as (
    records append_record_v1[], bodies integer, entries append_entry_v1[], resources append_resource_v1[],
    streams text[], stream_open boolean, once text, fence_key text, fence_expect bigint,
    steady_campaign text, steady_version bigint, steady_fetched boolean,
    sub text, path text, key text, body_hash text, answer text,
    interaction text, interaction_campaign text, interaction_run text,
    holds_campaign text, holds_owner text, holds_checked text[], holds_taken text[], holds_released boolean);

-- What the function keeps while the units go by: one value each, because PL/pgSQL pays for every assignment.
create type append_stream_v1 as (
    stream text, campaign text, status text, seq bigint, hash bytea, at timestamptz, published_seq bigint,
    published_hash bytea, published_at timestamptz, labels integer);
create type append_row_v1 as (
    unit integer, fence bigint, stream text, seq bigint, id text, campaign text, type text, at timestamptz,
    previous_hash bytea, hash bytea, body bytea, entry text, label integer, after bigint, published boolean);
create type append_change_v1 as (
    change append_entry_v1, seq bigint, view bytea, at timestamptz, concluded_at timestamptz, created_at timestamptz,
    label integer);

-- Beside the units and their bodies: what they name, of each kind once, so that it is locked and read at once.
create function append_v1(units jsonb, bodies bytea[], locks bigint[], names text[], fence_keys text[], ids text[],
                          keys text[], reverting text[], campaigns text[], opens jsonb)
returns table (unit integer, refused text, detail text, fence bigint, stream text, seq bigint,
               at timestamptz, hash bytea, previous_hash bytea, after bigint, label integer)
language plpgsql set search_path = recorder, pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    claiming constant text[] := array['pending', 'in_doubt', 'unverified', 'committed'];
    version constant bytea := int4send(1) || convert_to('1', 'UTF8');
    now_at timestamptz;
    us append_unit_v1[];
    u append_unit_v1;
    r append_record_v1;
    e append_entry_v1;
    body_offset integer := 0;
    first_row integer;
    at_unit integer := -1;
    raised bigint;
    found_text text;
    i integer;
    k integer;
    stamp bytea; now_stamp bytea;
    -- streams, as they stand while the units go by
    s append_stream_v1[]; s_name text[]; st append_stream_v1;
    -- fences
    f_key text[]; f_value bigint[];
    -- entries that the units name: those there already, then the new ones
    e_id text[]; e_status text[]; e_concluded timestamptz[]; e_change append_change_v1[]; was append_change_v1;
    -- pending writers by serial key, claims by what they revert
    w_key text[]; w_entry text[];
    c_reverts text[]; c_entry text[];
    -- how far the campaigns are that units were made by; null for one with a write in doubt
    v_campaign text[]; v_version bigint[];
    -- what is to be written at the end
    resources append_resource_v1[] := '{}';
    rows append_row_v1[] := '{}'; row append_row_v1;
    publishing boolean := false; inserting boolean := false; updating boolean := false;
begin
    us := array(select x from jsonb_populate_recordset(null::append_unit_v1, units) as x);

    perform pg_advisory_xact_lock(number) from unnest(locks) as number;
    if opens is not null then
        insert into streams (stream, campaign, kind)
            select distinct o.stream, o.campaign, o.kind
            from jsonb_to_recordset(opens) as o (stream text, campaign text, kind text)
            order by 1
            on conflict do nothing;
    end if;
    select array_agg(x.stream), array_agg((x.stream, x.campaign, x.status, x.seq, x.hash, x.at, x.published_seq,
                                           x.published_hash, x.published_at, x.labels)::append_stream_v1)
        into s_name, s
        from (select * from streams where stream = any (names) order by stream for update) as x;

    -- Everything is locked: from here on nobody else changes what is read.
    now_at := clock_timestamp();
    now_stamp := convert_to(to_char(now_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'UTF8');

    if cardinality(fence_keys) > 0 then
        select array_agg(x.key), array_agg(coalesce((select f.value from fences as f where f.serial_key = x.key), 0))
            into f_key, f_value from unnest(fence_keys) as x (key);
    end if;
    if cardinality(ids) > 0 then
        select array_agg(c.id), array_agg(c.status), array_agg(c.concluded_at) into e_id, e_status, e_concluded
            from entries as c where c.id = any (ids);
    end if;
    if cardinality(keys) > 0 then
        select array_agg(c.serial_key), array_agg(c.id) into w_key, w_entry
            from entries as c
            where c.status = 'pending' and c.write and c.serial_key is not null and c.serial_key = any (keys);
    end if;
    if cardinality(reverting) > 0 then
        select array_agg(c.reverts), array_agg(c.id) into c_reverts, c_entry
            from entries as c
            where c.status in ('pending', 'in_doubt', 'unverified', 'committed') and c.reverts is not null
              and c.reverts = any (reverting);
    end if;
    if cardinality(campaigns) > 0 then
        select array_agg(c.stream), array_agg(case when exists (
                select from entries as d where d.campaign = c.stream and d.status = 'in_doubt' and d.write
            ) then null else c.seq end)
            into v_campaign, v_version from streams as c where c.stream = any (campaigns);
    end if;

    foreach u in array us loop
        at_unit := at_unit + 1;
        refused := null;

        <<checks>>
        begin
            if u.steady_campaign is not null
               and v_version[array_position(v_campaign, u.steady_campaign)] is distinct from u.steady_version then
                refused := 'unsteady'; detail := u.steady_campaign; exit checks;
            end if;
            if u.steady_fetched then
                perform from approvals as a where a.run = any (u.streams) and a.fetched_at is null;
                if found then
                    refused := 'unsteady'; detail := u.steady_campaign; exit checks;
                end if;
            end if;

            for k in 1 .. cardinality(u.streams) loop
                i := array_position(s_name, u.streams[k]);
                if i is null then
                    refused := 'stream-missing'; detail := u.streams[k]; exit checks;
                end if;
                if u.stream_open and s[i].status <> 'open' then
                    refused := 'run-' || s[i].status; detail := u.streams[k]; exit checks;
                end if;
            end loop;

            if u.once is not null then
                select o.stream, o.seq into detail, seq from (
                    select r.stream, r.seq from records as r where r.id = u.once and r.stream = any (u.streams)
                    union all
                    select r.stream, r.seq from unnest(rows) as r where r.id = u.once and r.stream = any (u.streams)
                ) as o limit 1;
                if found then
                    refused := 'duplicate-record'; exit checks;
                end if;
            end if;

            if u.key is not null then
                select i.body_hash, i.entry into found_text, detail from idempotency as i
                    where i.sub = u.sub and i.path = u.path and i.key = u.key
                      and i.created_at > now_at - interval '7 days';
                if found then
                    refused := case when found_text = u.body_hash then 'idempotency-replay' else 'idempotency-conflict' end;
                    exit checks;
                end if;
            end if;

            if u.entries is not null then
                foreach e in array u.entries loop
                    i := array_position(e_id, e.id);
                    if (e.expect is null) <> (i is null) or e_status[i] <> all (e.expect) then
                        refused := 'status-changed'; detail := coalesce(e_status[i], 'absent'); exit checks;
                    end if;
                    if e.reverts is not null and e.status = any (claiming) then
                        k := array_position(c_reverts, e.reverts);
                        if c_entry[k] <> e.id then
                            refused := 'already-claimed'; detail := c_entry[k]; exit checks;
                        end if;
                    end if;
                    if e.status = 'pending' and e.write and e.serial_key is not null then
                        k := array_position(w_key, e.serial_key);
                        if w_entry[k] <> e.id then
                            refused := 'writer-pending'; detail := w_entry[k]; exit checks;
                        end if;
                    end if;
                end loop;
            end if;

            if u.holds_checked is not null or u.holds_taken is not null then
                select h.resource into detail from holds as h
                    where h.campaign = u.holds_campaign and h.reversal is distinct from u.holds_owner
                      and (h.resource = any (u.holds_checked) or h.resource = any (u.holds_taken)) limit 1;
                if found then
                    refused := 'reversal-running'; exit checks;
                end if;
            end if;

            if u.fence_expect is not null then
                i := array_position(f_key, u.fence_key);
                if f_value[i] <> u.fence_expect then
                    refused := 'fence-moved'; detail := f_value[i]::text; exit checks;
                end if;
            end if;

            if u.interaction is not null then
                select i.run into found_text from interactions as i
                    where i.campaign = u.interaction_campaign and i.id = u.interaction;
                if not found then
                    insert into interactions (campaign, id, run)
                        values (u.interaction_campaign, u.interaction, u.interaction_run);
                elsif found_text <> u.interaction_run then
                    refused := 'interaction-taken'; detail := found_text; exit checks;
                end if;
            end if;
        end checks;

        if refused is not null then
            body_offset := body_offset + u.bodies;
            unit := at_unit;
            return next;
            seq := null;
            continue;
        end if;

        -- From here on the unit is written.
        raised := null;
        if u.fence_key is not null then
            i := array_position(f_key, u.fence_key);
            raised := f_value[i] + 1;
            f_value[i] := raised;
        end if;

        first_row := cardinality(rows);
        foreach r in array u.records loop
            i := array_position(s_name, r.stream);
            st := s[i];
            st.seq := st.seq + 1;
            st.at := greatest(now_at, st.at);
            row := (at_unit, raised, r.stream, st.seq, r.id, st.campaign, r.type, st.at, st.hash, null,
                    bodies[body_offset + r.body + 1], r.entry, case when r.first then st.labels + 1 end,
                    case when r.published then st.published_seq end, r.published);
            stamp := case when st.at = now_at then now_stamp
                else convert_to(to_char(st.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'UTF8') end;
            st.hash := sha256(st.hash || version
                || int4send(octet_length(st.campaign)) || convert_to(st.campaign, 'UTF8')
                || int4send(octet_length(r.stream)) || convert_to(r.stream, 'UTF8')
                || int4send(octet_length(st.seq::text)) || convert_to(st.seq::text, 'UTF8')
                || int4send(octet_length(r.id)) || convert_to(r.id, 'UTF8')
                || int4send(octet_length(r.type)) || convert_to(r.type, 'UTF8')
                || int4send(octet_length(stamp)) || stamp
                || sha256(row.body));
            row.hash := st.hash;
            if r.first then
                st.labels := row.label;
            end if;
            if r.published then
                publishing := true;
                st.published_seq := st.seq;
                st.published_hash := st.hash;
                st.published_at := st.at;
            end if;
            if r.type in ('run.closed', 'run.paused', 'run.resumed') then
                st.status := case
                    when r.type = 'run.closed' then 'closed'
                    when r.type = 'run.paused' and st.status = 'open' then 'paused'
                    when r.type = 'run.resumed' and st.status = 'paused' then 'open'
                    else st.status end;
            end if;
            s[i] := st;
            rows := rows || row;
        end loop;

        if u.entries is not null then
            foreach e in array u.entries loop
                row := rows[first_row + e.record + 1];
                i := array_position(e_id, e.id);
                if i is null then
                    inserting := true;
                    e_id := e_id || e.id;
                    i := cardinality(e_id);
                    e_change[i] := (e, row.seq, row.body, row.at, case when e.concluded then row.at end, row.at,
                                    row.label)::append_change_v1;
                else
                    was := e_change[i];
                    updating := updating or was.label is null;
                    e_change[i] := (e, row.seq, row.body, row.at,
                                    case when e.concluded then coalesce(was.concluded_at, e_concluded[i], row.at) end,
                                    was.created_at, was.label)::append_change_v1;
                end if;
                e_status[i] := e.status;

                i := array_position(w_entry, e.id);
                if e.status = 'pending' and e.write and e.serial_key is not null then
                    if i is null then
                        w_key := w_key || e.serial_key;
                        w_entry := w_entry || e.id;
                    end if;
                elsif i is not null then
                    w_key[i] := null;
                    w_entry[i] := null;
                end if;
                if e.reverts is not null then
                    i := array_position(c_entry, e.id);
                    if e.status = any (claiming) then
                        if i is null then
                            c_reverts := c_reverts || e.reverts;
                            c_entry := c_entry || e.id;
                        end if;
                    elsif i is not null then
                        c_reverts[i] := null;
                        c_entry[i] := null;
                    end if;
                end if;
            end loop;
        end if;

        if u.resources is not null then
            resources := resources || u.resources;
        end if;
        if u.key is not null then
            insert into idempotency (sub, path, key, body_hash, entry, created_at)
                values (u.sub, u.path, u.key, u.body_hash, u.answer, now_at)
                on conflict (sub, path, key) do update set
                    body_hash = excluded.body_hash, entry = excluded.entry, created_at = excluded.created_at;
        end if;
        if u.holds_released then
            delete from holds as h where h.campaign = u.holds_campaign and h.reversal = u.holds_owner;
        end if;
        if u.holds_taken is not null then
            insert into holds (campaign, resource, reversal)
                select u.holds_campaign, name, u.holds_owner from unnest(u.holds_taken) as name
                on conflict do nothing;
        end if;
        body_offset := body_offset + u.bodies;
    end loop;

    if cardinality(rows) = 0 then
        return;
    end if;
    insert into records (stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published)
        select x.stream, x.seq, x.id, x.campaign, x.type, x.at, x.previous_hash, x.hash, x.body, x.entry, x.label, x.after,
               x.published
        from unnest(rows) as x;
    if publishing then
        insert into outbox (id, stream, seq, at)
            select x.id, x.stream, x.seq, x.at from unnest(rows) as x where x.published;
    end if;
    update streams as o set
        status = x.status, seq = x.seq, hash = x.hash, at = x.at, published_seq = x.published_seq,
        published_hash = x.published_hash, published_at = x.published_at, labels = x.labels
        from unnest(s) as x where o.stream = x.stream and o.seq <> x.seq;
    -- What ends makes room first, then what is no longer pending: the unique indexes look at one row after the other.
    if updating then
        update entries as c set
            status = (x.change).status, serial_key = (x.change).serial_key, write = (x.change).write, view_seq = x.seq,
            view = x.view, lease_until = x.at + make_interval(secs => (x.change).lease_seconds),
            concluded_at = x.concluded_at
            from (select * from unnest(e_change) as y where y.label is null
                  order by (y.change).status = any (claiming), (y.change).status = 'pending') as x
            where c.id = (x.change).id;
    end if;
    if inserting then
        insert into entries (
            id, run, campaign, interaction, server, operation, tier, kind, principal, agent, status, serial_key, write,
            reverts, arguments_hash, label, view_seq, view, lease_until, created_at, concluded_at)
        select (x.change).id, (x.change).run, (x.change).campaign, (x.change).interaction, (x.change).server,
               (x.change).operation, (x.change).tier, (x.change).kind, (x.change).principal, (x.change).agent,
               (x.change).status, (x.change).serial_key, (x.change).write, (x.change).reverts, (x.change).arguments_hash,
               x.label, x.seq, x.view, x.at + make_interval(secs => (x.change).lease_seconds), x.created_at, x.concluded_at
            from unnest(e_change) as x where x.label is not null;
    end if;
    if cardinality(resources) > 0 then
        -- A use that two units of one group name twice makes the group fail; the writer then writes each unit alone.
        insert into entry_resources (entry, resource, role, campaign, version)
            select x.entry, x.resource, x.role, x.campaign, x.version from unnest(resources) as x
            on conflict (entry, resource, role) do update set version = excluded.version;
    end if;
    if f_key is not null then
        insert into fences as f (serial_key, value)
            select x.key, x.value from unnest(f_key, f_value) as x (key, value) where x.value > 0 order by x.key
            on conflict (serial_key) do update set value = excluded.value where f.value <> excluded.value;
    end if;
    return query select x.unit, null::text, null::text, x.fence, x.stream, x.seq, x.at, x.hash, x.previous_hash, x.after, x.label
        from unnest(rows) as x;
end $$;

revoke all on function append_v1 from public;
grant execute on function append_v1 to takeback_recorder;
