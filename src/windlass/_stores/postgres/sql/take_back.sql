-- What was inserted a moment ago, by this very transaction, and had ended before.
DELETE FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[])
