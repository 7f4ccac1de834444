-- When the first of the tasks ended that are to be pruned and are still there, as others need or have locked them.
SELECT min(h.finished_at)
FROM windlass./* :table */ AS h
WHERE
    h.state = $1 AND h.finished_at < $2 AND h.finished_at >= $3
    AND (h.queue = ANY ($4::text[])) = $5::boolean AND (h.type = ANY ($6::text[])) = $7::boolean
