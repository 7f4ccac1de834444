-- Delete all but the newest attempts of a task. Uses the primary key.
DELETE FROM windlass_attempt
WHERE
    task_id = :id
    AND fence <= (
        SELECT newest.fence
        FROM windlass_attempt AS newest
        WHERE newest.task_id = :id
        ORDER BY newest.fence DESC
        LIMIT 1 OFFSET :keep
    )
