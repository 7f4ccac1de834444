-- Delete the attempts and keys of the tasks in one day's partition of the history; returns how many tasks it
-- has of each queue and state, and a row with number 0 in any case. If a task still waits for one of them: delete
-- nothing, return no row.
-- A task completed at its first claim has no attempts of its own.
WITH awaited AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM windlass.dependency AS d
        INNER JOIN windlass./* :partition */ AS h ON h.id = d.predecessor
    ) AS some
),

lines AS (
    DELETE FROM windlass.attempt AS a
    USING windlass./* :partition */ AS h
    WHERE
        a.task_id = h.id AND (h.fence > 1 OR h.state <> 'completed')
        AND NOT (SELECT awaited.some FROM awaited)
),

keys AS (
    DELETE FROM windlass.idempotency AS i
    USING windlass./* :partition */ AS h
    WHERE
        h.idempotency_key IS NOT NULL AND i.tenant = h.tenant AND i.key = h.idempotency_key
        AND i.task_id = h.id AND i.until IS NULL
        AND NOT (SELECT awaited.some FROM awaited)
)

SELECT h.queue, h.state, count(*) AS number
FROM awaited, windlass./* :partition */ AS h
WHERE NOT awaited.some
GROUP BY h.queue, h.state
UNION ALL
SELECT '', 'completed', 0
FROM awaited
WHERE NOT awaited.some
