-- Delete the attempts and keys of the tasks in one day's partition of the history that were not copied to the table that
-- is to replace it; returns how many these are by queue and state.
-- Arrays make the planner look up what is deleted, and LIMIT what was copied: a join might read all of both.
-- A task completed at its first claim has no attempts of its own.
WITH lines AS (
    DELETE FROM windlass.attempt AS a
    WHERE a.task_id = ANY (
        ARRAY(
            SELECT h.id
            FROM windlass./* :partition */ AS h
            WHERE
                (h.fence > 1 OR h.state <> 'completed')
                AND (SELECT k.id FROM windlass./* :partition */_kept AS k WHERE k.id = h.id LIMIT 1) IS NULL
        )
    )
),

keys AS (
    DELETE FROM windlass.idempotency AS i
    WHERE
        i.until IS NULL AND i.task_id = ANY (
            ARRAY(
                SELECT h.id
                FROM windlass./* :partition */ AS h
                WHERE
                    h.idempotency_key IS NOT NULL
                    AND (SELECT k.id FROM windlass./* :partition */_kept AS k WHERE k.id = h.id LIMIT 1) IS NULL
            )
        )
)

SELECT h.queue, h.state, count(*) AS number
FROM windlass./* :partition */ AS h
WHERE (SELECT k.id FROM windlass./* :partition */_kept AS k WHERE k.id = h.id LIMIT 1) IS NULL
GROUP BY h.queue, h.state
