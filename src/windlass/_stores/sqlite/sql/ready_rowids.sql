-- The first ready tasks of one queue without lanes, as a JSON list of rowids. Covered by windlass_task_ready,
-- already in order.
SELECT json_group_array(row)
FROM (
    SELECT rowid AS row
    FROM windlass_task
    WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready'
        AND rowid NOT IN (
            SELECT expired.rowid
            FROM windlass_task AS expired
            WHERE expired.expires_at <= :now AND expired.attempt = 0 AND expired.finished_at IS NULL
        )
    ORDER BY rank, id
    LIMIT :limit
)
