-- Forgets what hangs on the tasks of one day of the history, which stands here as history_day; answers with
-- their number, or, if a task still waits for one of them, with nothing and does nothing.
-- A task completed at its first claim has no lines beside it.
WITH awaited AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM windlass.dependency AS d
        INNER JOIN windlass.history_day AS h ON h.id = d.predecessor
    ) AS some
),

lines AS (
    DELETE FROM windlass.attempt AS a
    USING windlass.history_day AS h
    WHERE
        a.task_id = h.id AND (h.fence > 1 OR h.state <> 'completed')
        AND NOT (SELECT awaited.some FROM awaited)
),

keys AS (
    DELETE FROM windlass.idempotency AS i
    USING windlass.history_day AS h
    WHERE
        h.idempotency_key IS NOT NULL AND i.tenant = h.tenant AND i.key = h.idempotency_key
        AND i.task_id = h.id AND i.until IS NULL
        AND NOT (SELECT awaited.some FROM awaited)
)

SELECT (SELECT count(*) FROM windlass.history_day) AS number
FROM awaited
WHERE NOT awaited.some
