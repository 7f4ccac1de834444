-- How many ready tasks each of these lanes has, counted up to so many. Uses windlass_task_ready alone.
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
