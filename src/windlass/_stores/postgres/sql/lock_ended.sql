-- The states of tasks in the history, which are kept from being pruned until the transaction ends.
SELECT h.id::text, h.state
FROM windlass.history AS h
WHERE h.id = ANY ($1::uuid[])
ORDER BY h.id
FOR KEY SHARE
