-- Somebody waits for these queues, for so many seconds; the empty name stands for what is due soon.
INSERT INTO windlass.listener AS l (id, queues, until)
VALUES ($1, $2::text[], clock_timestamp() + make_interval(secs => $3))
ON CONFLICT (id) DO UPDATE
SET queues = excluded.queues, until = excluded.until
