-- The first ready tasks of one queue without lanes, as a JSON list of rowids. Covered by windlass_task_ready,
-- already in order.
SELECT json_group_array(row)
FROM (
    SELECT rowid AS row
    FROM windlass_task
    WHERE queue = :queue AND lane = '' AND key = '' AND state = 'ready'
    ORDER BY rank, id
    LIMIT :limit
)
