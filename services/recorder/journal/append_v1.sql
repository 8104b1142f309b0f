-- append_v1: the one way into the journal. One call is one group commit of many units; each unit is written whole or refused
-- alone. Every rule is checked under its lock before the unit's first write, so nothing needs to be rolled back, and the unique
-- indexes stay a last line. Locks, in this order, so that no two callers deadlock: advisory locks (serial keys, idempotency
-- keys, interactions, held resources) by their number, streams by name. An entry changes only under the lock of its stream.
--
-- What the rules ask about is read once for the whole group, kept current in arrays while the units go by, and written back
-- at the end: a handful of statements however many units there are.
--
-- A row comes back for each record written; a refused unit answers one row with `refused` and `detail`.
create type append_record_v1 as (
    stream text, id text, type text, body integer, published boolean, entry text, first boolean);
create type append_entry_v1 as (
    id text, expect text[], status text, run text, campaign text, interaction text, server text, operation text, tier text,
    kind text, principal text, agent text, serial_key text, write boolean, reverts text, arguments_hash text,
    record integer, lease_seconds double precision, concluded boolean);
create type append_resource_v1 as (entry text, resource text, role text, campaign text, version text);
create type append_unit_v1 as (
    records append_record_v1[], bodies integer, entries append_entry_v1[], resources append_resource_v1[],
    streams text[], stream_open boolean, opens jsonb, locks text[], once text, fence_key text, fence_expect bigint,
    sub text, path text, key text, body_hash text, answer text,
    interaction text, interaction_campaign text, interaction_run text,
    holds_campaign text, holds_owner text, holds_checked text[], holds_taken text[], holds_released boolean);

create function append_v1(units jsonb, bodies bytea[])
returns table (unit integer, refused text, detail text, fence bigint, record integer, stream text, seq bigint,
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
    first_record integer;
    found_text text;
    i integer;
    k integer;
    stamp bytea;
    -- what the units name
    names text[] := '{}'; locks text[] := '{}'; opening boolean := false; fence_keys text[] := '{}'; ids text[] := '{}';
    keys text[] := '{}'; reverting text[] := '{}';
    -- streams, as they stand while the units go by
    s_name text[]; s_campaign text[]; s_status text[]; s_seq bigint[]; s_hash bytea[]; s_at timestamptz[];
    s_published bigint[]; s_published_hash bytea[]; s_published_at timestamptz[]; s_labels integer[];
    -- fences
    f_key text[]; f_value bigint[];
    -- entries that the units name: those there already, then the new ones
    e_id text[]; e_status text[]; e_concluded timestamptz[]; e_new boolean[];
    e_touched boolean[]; e_change append_entry_v1[]; e_at timestamptz[]; e_created timestamptz[];
    e_label integer[]; e_seq bigint[]; e_view bytea[];
    -- pending writers by serial key, claims by what they revert
    w_key text[]; w_entry text[];
    c_reverts text[]; c_entry text[];
    -- what is to be written at the end
    resources append_resource_v1[] := '{}';
    r_stream text[] := '{}'; r_seq bigint[] := '{}'; r_id text[] := '{}'; r_campaign text[] := '{}';
    r_type text[] := '{}'; r_at timestamptz[] := '{}'; r_previous bytea[] := '{}'; r_hash bytea[] := '{}';
    r_body bytea[] := '{}'; r_entry text[] := '{}'; r_label integer[] := '{}'; r_after bigint[] := '{}';
    r_published boolean[] := '{}';
begin
    us := array(select x from jsonb_populate_recordset(null::append_unit_v1, units) as x);

    foreach u in array us loop
        names := names || u.streams;
        locks := locks || u.locks;
        opening := opening or u.opens is not null;
        if u.fence_key is not null then
            fence_keys := fence_keys || u.fence_key;
        end if;
        if u.entries is not null then
            foreach e in array u.entries loop
                ids := ids || e.id;
                if e.status = 'pending' and e.write and e.serial_key is not null then
                    keys := keys || e.serial_key;
                end if;
                if e.reverts is not null then
                    reverting := reverting || e.reverts;
                end if;
            end loop;
        end if;
    end loop;

    if cardinality(locks) > 0 then
        perform pg_advisory_xact_lock(wanted.number) from (
            select distinct hashtextextended(name, 0) as number from unnest(locks) as name order by 1) as wanted;
    end if;
    if opening then
        insert into streams (stream, campaign, kind)
            select distinct o.stream, o.campaign, o.kind
            from unnest(us) as x, jsonb_to_recordset(x.opens) as o (stream text, campaign text, kind text)
            where x.opens is not null
            order by 1
            on conflict do nothing;
    end if;
    select array_agg(s.stream), array_agg(s.campaign), array_agg(s.status), array_agg(s.seq), array_agg(s.hash),
           array_agg(s.at), array_agg(s.published_seq), array_agg(s.published_hash), array_agg(s.published_at),
           array_agg(s.labels)
        into s_name, s_campaign, s_status, s_seq, s_hash, s_at, s_published, s_published_hash, s_published_at, s_labels
        from (select * from streams where stream = any (names) order by stream for update) as s;

    -- Everything is locked: from here on nobody else changes what is read.
    now_at := clock_timestamp();

    if cardinality(fence_keys) > 0 then
        select array_agg(x.key), array_agg(coalesce((select f.value from fences as f where f.serial_key = x.key), 0))
            into f_key, f_value from (select distinct key from unnest(fence_keys) as key) as x;
    end if;
    if cardinality(ids) > 0 then
        -- The other arrays get their places now: one that began with a later place would be read shifted.
        select array_agg(c.id), array_agg(c.status), array_agg(c.concluded_at), array_agg(false), array_agg(false),
               array_agg(null::append_entry_v1), array_agg(null::timestamptz), array_agg(null::timestamptz),
               array_agg(null::integer), array_agg(null::bigint), array_agg(null::bytea)
            into e_id, e_status, e_concluded, e_new, e_touched, e_change, e_at, e_created, e_label, e_seq, e_view
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

    foreach u in array us loop
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
                select o.stream, o.seq into detail, seq from records as o
                    where o.id = u.once and o.stream = any (u.streams) limit 1;
                if not found then
                    k := array_position(r_id, u.once);
                    detail := r_stream[k]; seq := r_seq[k];
                end if;
                if seq is not null then
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
            return next;
            continue;
        end if;

        -- From here on the unit is written.
        if u.fence_key is not null then
            i := array_position(f_key, u.fence_key);
            fence := f_value[i] + 1;
            f_value[i] := fence;
        end if;

        first_record := cardinality(r_stream);
        foreach r in array u.records loop
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
            if r.type = 'run.closed' then
                s_status[i] := 'closed';
            elsif r.type = 'run.paused' and s_status[i] = 'open' then
                s_status[i] := 'paused';
            elsif r.type = 'run.resumed' and s_status[i] = 'paused' then
                s_status[i] := 'open';
            end if;

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

        if u.entries is not null then
            foreach e in array u.entries loop
                k := first_record + e.record + 1;
                i := array_position(e_id, e.id);
                if i is null then
                    e_id := e_id || e.id;
                    i := cardinality(e_id);
                    e_new[i] := true;
                    e_label[i] := r_label[k];
                    e_created[i] := r_at[k];
                end if;
                e_touched[i] := e_new[i] is not true;
                e_status[i] := e.status;
                e_change[i] := e;
                e_at[i] := r_at[k];
                e_seq[i] := r_seq[k];
                e_view[i] := r_body[k];
                e_concluded[i] := case when e.concluded then coalesce(e_concluded[i], r_at[k]) end;

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

    if cardinality(r_stream) = 0 then
        return;
    end if;
    insert into records (stream, seq, id, campaign, type, at, previous_hash, hash, body, entry, label, after, published)
        select * from unnest(r_stream, r_seq, r_id, r_campaign, r_type, r_at, r_previous, r_hash, r_body, r_entry,
                             r_label, r_after, r_published);
    if true = any (r_published) then
        insert into outbox (id, stream, seq, at)
            select x.id, x.stream, x.seq, x.at from unnest(r_id, r_stream, r_seq, r_at, r_published)
                as x (id, stream, seq, at, published) where x.published;
    end if;
    update streams as s set
        status = x.status, seq = x.seq, hash = x.hash, at = x.at, published_seq = x.published_seq,
        published_hash = x.published_hash, published_at = x.published_at, labels = x.labels
        from unnest(s_name, s_status, s_seq, s_hash, s_at, s_published, s_published_hash, s_published_at, s_labels)
            as x (stream, status, seq, hash, at, published_seq, published_hash, published_at, labels)
        where s.stream = x.stream and s.seq <> x.seq;
    -- What is no longer pending makes room first.
    if true = any (e_touched) then
        update entries as c set
            status = x.status, serial_key = (x.change).serial_key, write = (x.change).write, view_seq = x.seq, view = x.view,
            lease_until = x.at + make_interval(secs => (x.change).lease_seconds), concluded_at = x.concluded
            from (select n.*, e_change[n.position] as change
                  from unnest(e_id, e_status, e_at, e_seq, e_view, e_concluded, e_touched)
                      with ordinality as n (id, status, at, seq, view, concluded, touched, position)
                  where n.touched) as x
            where c.id = x.id;
    end if;
    if true = any (e_new) then
        insert into entries (
            id, run, campaign, interaction, server, operation, tier, kind, principal, agent, status, serial_key, write,
            reverts, arguments_hash, label, view_seq, view, lease_until, created_at, concluded_at)
        select x.id, (x.change).run, (x.change).campaign, (x.change).interaction, (x.change).server, (x.change).operation,
               (x.change).tier, (x.change).kind, (x.change).principal, (x.change).agent, x.status, (x.change).serial_key,
               (x.change).write, (x.change).reverts, (x.change).arguments_hash, x.label, x.seq, x.view,
               x.at + make_interval(secs => (x.change).lease_seconds), x.created_at, x.concluded
            from (select n.*, e_change[n.position] as change
                  from unnest(e_id, e_status, e_at, e_created, e_label, e_seq, e_view, e_concluded, e_new)
                      with ordinality as n (id, status, at, created_at, label, seq, view, concluded, new, position)
                  where n.new) as x;
    end if;
    if cardinality(resources) > 0 then
        insert into entry_resources (entry, resource, role, campaign, version)
            select distinct on (x.entry, x.resource, x.role) x.entry, x.resource, x.role, x.campaign, x.version
            from unnest(resources) with ordinality as x (entry, resource, role, campaign, version, position)
            order by x.entry, x.resource, x.role, x.position desc
            on conflict (entry, resource, role) do update set version = excluded.version;
    end if;
    if f_key is not null then
        insert into fences as f (serial_key, value)
            select x.key, x.value from unnest(f_key, f_value) as x (key, value) where x.value > 0 order by x.key
            on conflict (serial_key) do update set value = excluded.value where f.value <> excluded.value;
    end if;
end $$;

revoke all on function append_v1(jsonb, bytea[]) from public;
grant execute on function append_v1(jsonb, bytea[]) to takeback_recorder;
