-- Give these permits to running tasks. IS NOT DISTINCT FROM is as in settle.sql.
WITH permitted AS (
    INSERT INTO windlass.permit (key, task_id, at)
    SELECT g.key, g.task_id, g.at
    FROM unnest($1::text[], $2::uuid[], $3::timestamptz[]) AS g (key, task_id, at)
    ON CONFLICT (key, task_id) DO UPDATE SET at = excluded.at
)

UPDATE windlass.task AS t
SET limited = true
WHERE t.id = ANY ($2::uuid[]) AND t.state IS NOT DISTINCT FROM 'running'
