-- What keeps vacuum from clearing up: transactions, prepared ones, and slots of replication; and for how long
-- each has, in seconds, as far as the server tells.
SELECT
    'transaction' AS kind,
    a.pid::text || coalesce(' (' || nullif(a.application_name, '') || ')', '') AS name,
    coalesce(a.state, '') AS state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds
FROM pg_catalog.pg_stat_activity AS a
WHERE
    a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start IS NOT NULL
    AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL
SELECT 'prepared', p.gid, p.owner::text, extract(epoch FROM clock_timestamp() - p.prepared)::double precision
FROM pg_catalog.pg_prepared_xacts AS p
WHERE p.database = current_database()
UNION ALL
SELECT 'slot', s.slot_name::text, CASE WHEN s.active THEN 'active' ELSE 'inactive' END, age(s.xmin)::double precision
FROM pg_catalog.pg_replication_slots AS s
WHERE s.xmin IS NOT NULL OR NOT s.active
