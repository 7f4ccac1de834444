-- The next keys of each of these lanes, after one key and up to another, each with its first ready task. Two
-- lookups in windlass_task_ready per key; the rows by rowid.
WITH RECURSIVE found (lane, key, last, number) AS (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), 0
    FROM json_each(:lanes)
    UNION ALL
    SELECT
        found.lane,
        (
            SELECT min(task.key)
            FROM windlass_task AS task
            WHERE
                task.queue = :queue AND task.lane = found.lane AND task.state = 'ready'
                AND task.key > found.key AND task.key <= found.last
                AND (:types IS NULL OR task.type IN (SELECT value FROM json_each(:types)))
        ),
        found.last,
        found.number + 1
    FROM found
    WHERE found.key IS NOT NULL AND found.number < :limit
)
SELECT found.lane, found.key, task.rank, task.id, task.rowid, task.type, task.tenant, task.payload
FROM found
CROSS JOIN windlass_task AS task
WHERE
    found.number > 0
    AND found.key IS NOT NULL
    AND task.rowid = (
        SELECT head.rowid
        FROM windlass_task AS head
        WHERE
            head.queue = :queue AND head.lane = found.lane AND head.key = found.key AND head.state = 'ready'
            AND (head.expires_at IS NULL OR head.expires_at > :now OR head.attempt > 0)
            AND (:types IS NULL OR head.type IN (SELECT value FROM json_each(:types)))
        ORDER BY head.rank, head.id
        LIMIT 1
    )
