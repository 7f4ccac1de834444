-- Unregister as a listener, and delete expired registrations.
DELETE FROM windlass.listener AS l
WHERE l.id = $1 OR l.until < clock_timestamp()
