-- Tasks by id, locked in that order.
SELECT t.awaited, t.claim_number, t.limited, /* :task_columns */
FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[])
ORDER BY t.id
FOR UPDATE
