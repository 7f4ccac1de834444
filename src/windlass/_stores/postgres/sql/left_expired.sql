-- Tasks that were to be pruned and are still there, as others need or have locked them.
SELECT h.id::text
FROM windlass./* :table */ AS h
WHERE
    h.state = $1 AND h.finished_at < $2 AND /* :looked_at */
    AND (h.queue = ANY ($4::text[])) = $5::boolean AND (h.type = ANY ($6::text[])) = $7::boolean
LIMIT $8
