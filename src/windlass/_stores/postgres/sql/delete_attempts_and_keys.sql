-- Delete the attempts of deleted tasks, and the idempotency keys that last as long as their task.
WITH lines AS (
    DELETE FROM windlass.attempt AS a
    WHERE a.task_id = ANY ($1::uuid[])
)

DELETE FROM windlass.idempotency AS i
WHERE i.task_id = ANY ($1::uuid[]) AND i.until IS NULL
