-- Write something, so that the commit waits until the synchronous standbys have it, and all that was committed before.
SELECT pg_catalog.pg_logical_emit_message(true, 'windlass', '')
