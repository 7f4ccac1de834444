-- Delete the attempts and keys of the tasks in one day's partition of the history that no other task needs; returns how
-- many these are by queue and state.
-- A task completed at its first claim has no attempts of its own.
WITH needed AS MATERIALIZED (
    SELECT d.predecessor AS id
    FROM windlass.dependency AS d
    INNER JOIN windlass./* :partition */ AS h ON h.id = d.predecessor
),

lines AS (
    DELETE FROM windlass.attempt AS a
    USING windlass./* :partition */ AS h
    WHERE
        a.task_id = h.id AND (h.fence > 1 OR h.state <> 'completed')
        AND NOT EXISTS (SELECT FROM needed WHERE needed.id = h.id)
),

keys AS (
    DELETE FROM windlass.idempotency AS i
    USING windlass./* :partition */ AS h
    WHERE
        h.idempotency_key IS NOT NULL AND i.tenant = h.tenant AND i.key = h.idempotency_key
        AND i.task_id = h.id AND i.until IS NULL
        AND NOT EXISTS (SELECT FROM needed WHERE needed.id = h.id)
)

SELECT h.queue, h.state, count(*) AS number
FROM windlass./* :partition */ AS h
WHERE NOT EXISTS (SELECT FROM needed WHERE needed.id = h.id)
GROUP BY h.queue, h.state
