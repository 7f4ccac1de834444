-- Lease these locked tasks to a session: fence and attempt rise by one. Inserts the permits that they need, and
-- writes the tokens that rate limits have left.
-- IS NOT DISTINCT FROM keeps the planner off the indexes of ready tasks, as in settle.sql.
WITH leased AS (
    UPDATE windlass.task AS t
    SET
        state = 'running',
        fence = t.fence + 1,
        attempt = t.attempt + 1,
        claimed_at = $1::timestamptz,
        session = $2,
        claim_number = $3,
        worker = $4,
        progress_fraction = NULL,
        progress_message = NULL,
        limited = g.limited
    FROM unnest($5::uuid[], $6::boolean[]) AS g (id, limited)
    WHERE t.id = g.id AND t.state IS NOT DISTINCT FROM 'ready'
    RETURNING /* :leased_columns */
),

permitted AS (
    INSERT INTO windlass.permit (key, task_id, at)
    SELECT g.key, g.task_id, $1::timestamptz
    FROM unnest($7::text[], $8::uuid[]) AS g (key, task_id)
    ON CONFLICT (key, task_id) DO UPDATE SET at = excluded.at
),

spent AS (
    UPDATE windlass.bucket AS b
    SET tokens = g.tokens, at = $1::timestamptz
    FROM unnest($9::text[], $10::double precision[]) AS g (key, tokens)
    WHERE b.key = g.key
)

SELECT leased.* FROM leased
