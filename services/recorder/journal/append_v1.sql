-- append_v1: the one way into the journal. One call is one group commit of many units; each unit is written whole or refused
-- alone. Every rule is checked under its lock before the unit's first write, so nothing needs to be rolled back and the unique
-- indexes stay a last line. Locks, in this order, so that no two callers deadlock: advisory locks (serial keys, idempotency
-- keys, interactions, held resources) by their number, streams by name. An entry changes only under the lock of its stream.
--
-- A row comes back for each record written; a refused unit answers one row with `refused` and `detail`.
create function append_v1(units jsonb, bodies bytea[])
returns table (unit integer, refused text, detail text, fence bigint, record integer, stream text, seq bigint,
               at timestamptz, hash bytea, previous_hash bytea, after bigint, label integer)
language plpgsql set search_path = recorder, pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    u record;
    r record;
    e record;
    now_at timestamptz;
    body_offset integer := 0;
    found_text text;
    found_number bigint;
    i integer;
    k integer;
    -- the streams of this call, as they stand while it goes on
    s_name text[]; s_campaign text[]; s_status text[]; s_seq bigint[]; s_hash bytea[]; s_at timestamptz[];
    s_published bigint[]; s_published_hash bytea[]; s_published_at timestamptz[]; s_labels integer[];
    -- the records of this call
    r_stream text[] := '{}'; r_seq bigint[] := '{}'; r_id text[] := '{}'; r_campaign text[] := '{}';
    r_type text[] := '{}'; r_at timestamptz[] := '{}'; r_previous bytea[] := '{}'; r_hash bytea[] := '{}';
    r_body bytea[] := '{}'; r_entry text[] := '{}'; r_label integer[] := '{}'; r_after bigint[] := '{}';
    r_published boolean[] := '{}';
    -- the records of the unit at hand
    first_record integer;
    stamp bytea;
    version constant bytea := int4send(1) || convert_to('1', 'UTF8');
begin
    perform pg_advisory_xact_lock(wanted.number) from (
        select distinct hashtextextended(name, 0) as number
        from jsonb_to_recordset(units) as x (locks text[]), unnest(x.locks) as name
        order by 1) as wanted;

    insert into streams (stream, campaign, kind)
        select distinct o.stream, o.campaign, o.kind
        from jsonb_to_recordset(units) as x (opens jsonb),
             jsonb_to_recordset(x.opens) as o (stream text, campaign text, kind text)
        where x.opens is not null
        order by 1
        on conflict do nothing;

    select array_agg(s.stream), array_agg(s.campaign), array_agg(s.status), array_agg(s.seq), array_agg(s.hash),
           array_agg(s.at), array_agg(s.published_seq), array_agg(s.published_hash), array_agg(s.published_at),
           array_agg(s.labels)
        into s_name, s_campaign, s_status, s_seq, s_hash, s_at, s_published, s_published_hash, s_published_at, s_labels
        from (select * from streams where stream in (
                  select name from jsonb_to_recordset(units) as x (streams text[]), unnest(x.streams) as name)
              order by stream for update) as s;

    now_at := clock_timestamp();

    for u in select * from jsonb_to_recordset(units) as x (
        records jsonb, bodies integer, entries jsonb, resources jsonb, streams text[], stream_open boolean, once text,
        fence_key text, fence_expect bigint, sub text, path text, key text, body_hash text, answer text,
        interaction text, interaction_campaign text, interaction_run text,
        holds_campaign text, holds_owner text, holds_checked text[], holds_taken text[], holds_released boolean)
    loop
        unit := coalesce(unit + 1, 0);
        refused := null; detail := null; fence := null; record := null; stream := null; seq := null; at := null;
        hash := null; previous_hash := null; after := null; label := null;

        <<checks>>
        begin
            for k in 1 .. cardinality(u.streams) loop
                i := array_position(s_name, u.streams[k]);
                if i is null then
                    refused := 'stream-missing'; detail := u.streams[k]; exit checks;
                end if;
                if u.stream_open and s_status[i] <> 'open' then
                    refused := 'run-' || s_status[i]; detail := u.streams[k]; exit checks;
                end if;
            end loop;

            if u.once is not null then
                select o.stream, o.seq into found_text, found_number from records as o
                    where o.id = u.once and o.stream = any (u.streams) limit 1;
                if found then
                    refused := 'duplicate-record'; detail := found_text; seq := found_number; exit checks;
                end if;
                k := array_position(r_id, u.once);
                if k is not null then
                    refused := 'duplicate-record'; detail := r_stream[k]; seq := r_seq[k]; exit checks;
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

            for e in select * from jsonb_to_recordset(u.entries) as x (
                id text, expect text[], status text, serial_key text, write boolean, reverts text)
            loop
                select c.status into found_text from entries as c where c.id = e.id;
                if (e.expect is null) = found or found_text <> all (e.expect) then
                    refused := 'status-changed'; detail := coalesce(found_text, 'absent'); exit checks;
                end if;
                if e.reverts is not null and e.status in ('pending', 'in_doubt', 'unverified', 'committed') then
                    select c.id into detail from entries as c
                        where c.reverts = e.reverts and c.status in ('pending', 'in_doubt', 'unverified', 'committed')
                          and c.id <> e.id limit 1;
                    if found then refused := 'already-claimed'; exit checks; end if;
                end if;
                if e.status = 'pending' and e.write and e.serial_key is not null then
                    select c.id into detail from entries as c
                        where c.serial_key = e.serial_key and c.status = 'pending' and c.write and c.id <> e.id limit 1;
                    if found then refused := 'writer-pending'; exit checks; end if;
                end if;
            end loop;

            if u.holds_checked is not null or u.holds_taken is not null then
                select h.resource into detail from holds as h
                    where h.campaign = u.holds_campaign and h.reversal is distinct from u.holds_owner
                      and (h.resource = any (u.holds_checked) or h.resource = any (u.holds_taken)) limit 1;
                if found then refused := 'reversal-running'; exit checks; end if;
            end if;

            if u.fence_expect is not null then
                select f.value into found_number from fences as f where f.serial_key = u.fence_key;
                if coalesce(found_number, 0) <> u.fence_expect then
                    refused := 'fence-moved'; detail := coalesce(found_number, 0)::text; exit checks;
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
            return next;
            continue;
        end if;

        -- From here on the unit is written.
        if u.fence_key is not null then
            insert into fences as f (serial_key, value) values (u.fence_key, 1)
                on conflict (serial_key) do update set value = f.value + 1 returning f.value into fence;
        end if;

        first_record := cardinality(r_stream);
        for r in select * from jsonb_to_recordset(u.records) as x (
            stream text, id text, type text, body integer, published boolean, entry text, first boolean)
        loop
            i := array_position(s_name, r.stream);
            stream := r.stream;
            seq := s_seq[i] + 1;
            at := greatest(now_at, s_at[i]);
            previous_hash := s_hash[i];
            after := case when r.published then s_published[i] end;
            label := null;
            if r.first then
                label := s_labels[i] + 1;
                s_labels[i] := label;
            end if;
            stamp := convert_to(to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'UTF8');
            hash := sha256(previous_hash || version
                || int4send(octet_length(s_campaign[i])) || convert_to(s_campaign[i], 'UTF8')
                || int4send(octet_length(stream)) || convert_to(stream, 'UTF8')
                || int4send(octet_length(seq::text)) || convert_to(seq::text, 'UTF8')
                || int4send(octet_length(r.id)) || convert_to(r.id, 'UTF8')
                || int4send(octet_length(r.type)) || convert_to(r.type, 'UTF8')
                || int4send(octet_length(stamp)) || stamp
                || sha256(bodies[body_offset + r.body + 1]));

            s_seq[i] := seq;
            s_hash[i] := hash;
            s_at[i] := at;
            if r.published then
                s_published[i] := seq;
                s_published_hash[i] := hash;
                s_published_at[i] := at;
            end if;
            case r.type
                when 'run.closed' then s_status[i] := 'closed';
                when 'run.paused' then if s_status[i] = 'open' then s_status[i] := 'paused'; end if;
                when 'run.resumed' then if s_status[i] = 'paused' then s_status[i] := 'open'; end if;
                else null;
            end case;

            r_stream := r_stream || stream;
            r_seq := r_seq || seq;
            r_id := r_id || r.id;
            r_campaign := r_campaign || s_campaign[i];
            r_type := r_type || r.type;
            r_at := r_at || at;
            r_previous := r_previous || previous_hash;
            r_hash := r_hash || hash;
            r_body := r_body || bodies[body_offset + r.body + 1];
            r_entry := r_entry || r.entry;
            r_label := r_label || label;
            r_after := r_after || after;
            r_published := r_published || r.published;

            record := cardinality(r_stream) - first_record - 1;
            return next;
        end loop;

        for e in select * from jsonb_to_recordset(u.entries) as x (
            id text, expect text[], status text, run text, campaign text, interaction text, server text, operation text,
            tier text, kind text, principal text, agent text, serial_key text, write boolean, reverts text,
            arguments_hash text, record integer, lease_seconds double precision, concluded boolean)
        loop
            k := first_record + e.record + 1;
            if e.expect is null then
                insert into entries (
                    id, run, campaign, interaction, server, operation, tier, kind, principal, agent, status, serial_key,
                    write, reverts, arguments_hash, label, view_seq, view, lease_until, created_at, concluded_at)
                values (
                    e.id, e.run, e.campaign, e.interaction, e.server, e.operation, e.tier, e.kind, e.principal, e.agent,
                    e.status, e.serial_key, e.write, e.reverts, e.arguments_hash, r_label[k], r_seq[k], r_body[k],
                    r_at[k] + make_interval(secs => e.lease_seconds), r_at[k], case when e.concluded then r_at[k] end);
            else
                update entries as c set
                    status = e.status, serial_key = e.serial_key, write = e.write, view_seq = r_seq[k], view = r_body[k],
                    lease_until = r_at[k] + make_interval(secs => e.lease_seconds),
                    concluded_at = case when e.concluded then coalesce(c.concluded_at, r_at[k]) end
                where c.id = e.id;
            end if;
        end loop;

        if u.resources is not null then
            insert into entry_resources (entry, resource, role, campaign, version)
                select x.entry, x.resource, x.role, x.campaign, x.version from jsonb_to_recordset(u.resources) as x (
                    entry text, resource text, role text, campaign text, version text)
                on conflict (entry, resource, role) do update set version = excluded.version;
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

    if cardinality(r_stream) > 0 then
        insert into records (stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published)
            select * from unnest(r_stream, r_seq, r_id, r_campaign, r_type, r_at, r_previous, r_hash, r_body, r_entry,
                                 r_label, r_after, r_published);
        insert into outbox (id, stream, seq, at)
            select x.id, x.stream, x.seq, x.at from unnest(r_id, r_stream, r_seq, r_at, r_published)
                as x (id, stream, seq, at, published) where x.published;
        update streams as s set
            status = x.status, seq = x.seq, hash = x.hash, at = x.at, published_seq = x.published_seq,
            published_hash = x.published_hash, published_at = x.published_at, labels = x.labels
            from unnest(s_name, s_status, s_seq, s_hash, s_at, s_published, s_published_hash, s_published_at, s_labels)
                as x (stream, status, seq, hash, at, published_seq, published_hash, published_at, labels)
            where s.stream = x.stream and s.seq <> x.seq;
    end if;
end $$;
revoke all on function append_v1(jsonb, bytea[]) from public;
grant execute on function append_v1(jsonb, bytea[]) to takeback_recorder;
