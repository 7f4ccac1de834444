-- What hung on tasks that are gone: their lines, and the keys that were to last as long as they.
WITH lines AS (
    DELETE FROM windlass.attempt AS a
    WHERE a.task_id = ANY ($1::uuid[])
)

DELETE FROM windlass.idempotency AS i
WHERE i.task_id = ANY ($1::uuid[]) AND i.until IS NULL
