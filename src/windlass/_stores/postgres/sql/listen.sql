-- Register as a listener for these queues, for a number of seconds; the name '' is for tasks due soon.
INSERT INTO windlass.listener AS l (id, queues, until)
VALUES ($1, $2::text[], clock_timestamp() + make_interval(secs => $3))
ON CONFLICT (id) DO UPDATE
SET queues = excluded.queues, until = excluded.until
