-- A call's body has 1 to 3 kB, and each is written to a record and to an entry. From 2 kB on PostgreSQL would try to compress
-- a row, twice in each conclusion; up to 4 kB it is now left as it is.
alter table entries set (toast_tuple_target = 4096);
do $$
declare
    part regclass;
begin
    for part in select inhrelid from pg_inherits where inhparent = 'records'::regclass loop
        execute format('alter table %s set (toast_tuple_target = 4096)', part);
    end loop;
end $$;
create or replace function ensure_partitions(months_ahead integer default 2) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    month timestamp;
    lower_bound timestamptz;
    upper_bound timestamptz;
    occupied boolean;
    made integer := 0;
begin
    for ahead in 0 .. months_ahead loop
        month := date_trunc('month', now() at time zone 'UTC') + make_interval(months => ahead);
        lower_bound := month at time zone 'UTC';
        upper_bound := (month + interval '1 month') at time zone 'UTC';
        continue when to_regclass(format('recorder.records_%s', to_char(month, 'YYYY_MM'))) is not null;
        execute 'select exists (select from recorder.records_default where at >= $1 and at < $2)'
            into occupied using lower_bound, upper_bound;
        continue when occupied;
        execute format('create table recorder.records_%s partition of recorder.records for values from (%L) to (%L) '
                       'with (toast_tuple_target = 4096)',
                       to_char(month, 'YYYY_MM'), lower_bound, upper_bound);
        made := made + 1;
    end loop;
    return made;
end $$;

-- An entry's uses are named by its intent, and written again with their versions by its conclusion: room beside them.
alter table entry_resources set (fillfactor = 50);
