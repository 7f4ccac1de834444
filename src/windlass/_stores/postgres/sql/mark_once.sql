-- Mark a key on a running task; returns whether this lease marked it first. No row: the lease is lost.
UPDATE windlass.task AS t
SET once = jsonb_build_object($3::text, t.fence) || coalesce(t.once, '{}')
WHERE t.id = $1::uuid AND t.fence = $2 AND t.state IS NOT DISTINCT FROM 'running'
RETURNING (t.once ->> $3::text)::bigint = $2
