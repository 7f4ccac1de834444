-- Delete tasks that this transaction has just inserted and that had ended before.
DELETE FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[])
