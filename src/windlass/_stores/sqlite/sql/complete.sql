-- Complete running tasks whose leases are valid, many in one statement. Uses the unique index on id.
-- A single statement runs without the interpreter's lock, in parallel with the handlers.
UPDATE windlass_task
SET
    state = 'completed', session = NULL, finished_at = :now, duration = given.duration,
    outcome = given.outcome, result = CAST(given.result AS BLOB),
    error_type = NULL, error_message = NULL, error_traceback = NULL, failure = NULL, unhandled_since = NULL,
    permits = NULL
FROM (
    SELECT
        key AS id, json_extract(value, '$[0]') AS fence, json_extract(value, '$[1]') AS duration,
        json_extract(value, '$[2]') AS outcome, json_extract(value, '$[3]') AS result
    FROM json_each(:settlements)
) AS given
WHERE windlass_task.id = given.id AND windlass_task.fence = given.fence AND windlass_task.state = 'running'
