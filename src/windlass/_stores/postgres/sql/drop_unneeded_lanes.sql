-- Queues that have had no need of lanes for a while are one line again. What still lies in their lanes is taken
-- out after this.
UPDATE windlass.queue AS q
SET laned = false
WHERE
    q.laned AND NOT q.guarded AND q.name <> ALL ($1::text[])
    AND q.laned_at < coalesce($2::timestamptz, clock_timestamp()) - interval '60 s'
