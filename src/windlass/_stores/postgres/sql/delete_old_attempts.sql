-- Delete all but the newest attempts of these tasks.
DELETE FROM windlass.attempt AS a
USING unnest($1::uuid[]) AS g (task_id)
WHERE
    a.task_id = g.task_id
    AND a.fence <= (
        SELECT newest.fence
        FROM windlass.attempt AS newest
        WHERE newest.task_id = g.task_id
        ORDER BY newest.fence DESC
        LIMIT 1 OFFSET $2
    )
