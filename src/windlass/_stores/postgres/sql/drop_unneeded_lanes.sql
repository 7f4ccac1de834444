-- Make queues FIFO again that have not needed lanes for a while. Their tasks are moved out of the lanes afterwards.
UPDATE windlass.queue AS q
SET laned = false
WHERE
    q.laned AND NOT q.guarded AND q.name <> ALL ($1::text[])
    AND q.laned_at < coalesce($2::timestamptz, clock_timestamp()) - interval '60 s'
