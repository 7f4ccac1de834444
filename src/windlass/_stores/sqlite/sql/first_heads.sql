-- The first ready tasks of queues without lanes, one of each: those that come first over all of them. One lookup in
-- windlass_task_ready per queue, in one statement, as a claim may name thousands of queues of which few have tasks.
SELECT task.queue
FROM json_each(:queues) AS named
INNER JOIN windlass_task AS task
    ON task.rowid = (
        SELECT head.rowid
        FROM windlass_task AS head
        WHERE head.queue = named.value AND head.lane = '' AND head.key = '' AND head.state = 'ready'
            AND head.rowid NOT IN (
                SELECT expired.rowid
                FROM windlass_task AS expired
                WHERE expired.expires_at <= :now AND expired.attempt = 0 AND expired.finished_at IS NULL
            )
        ORDER BY head.rank, head.id
        LIMIT 1
    )
ORDER BY task.rank, task.id
LIMIT :limit
