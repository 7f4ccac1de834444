-- Delete tasks in the history, which are locked, and return them. Asks again whether another task needs one: the
-- statement that locked them may not have seen what the task before it in the lock wrote.
DELETE FROM windlass.history AS h
WHERE
    h.id = ANY ($1::uuid[])
    AND NOT EXISTS (SELECT FROM windlass.dependency AS d WHERE d.predecessor = h.id)
RETURNING h.id::text, h.queue
