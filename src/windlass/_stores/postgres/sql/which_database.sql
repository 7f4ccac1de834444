-- Which database a connection is to, whatever way leads there: its name, its number on the server, the server's
-- start in microseconds, and its address. And whether there is a schema with a version. Cannot fail, which would
-- abort the caller's transaction.
SELECT
    d.datname::text,
    d.oid::text,
    (extract(EPOCH FROM pg_postmaster_start_time()) * 1000000)::bigint::text,
    coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket'),
    to_regclass('windlass.schema_version') IS NOT NULL
FROM pg_catalog.pg_database AS d
WHERE d.datname = current_database()
