-- The number of ready tasks in each of these lanes, counted up to a limit. Covered by windlass_task_ready.
SELECT
    given.value,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM windlass_task AS task
            WHERE task.queue = :queue AND task.lane = given.value AND task.state = 'ready'
            LIMIT :most
        )
    )
FROM json_each(:lanes) AS given
