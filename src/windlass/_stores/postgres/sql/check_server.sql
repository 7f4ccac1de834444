-- The server's settings and connections, and whether this user may see other users' sessions.
SELECT
    current_setting('server_encoding'),
    current_setting('autovacuum') = 'on',
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
    - coalesce(current_setting('reserved_connections', true)::integer, 0),
    (SELECT coalesce(sum(d.numbackends), 0)::integer FROM pg_catalog.pg_stat_database AS d),
    pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
