-- The clock, and whether any task has an id between these two. For a batch of new tasks none has.
SELECT
    coalesce($1::timestamptz, clock_timestamp()),
    EXISTS (SELECT FROM windlass.task AS t WHERE t.id BETWEEN $2::uuid AND $3::uuid)
    OR EXISTS (
        SELECT FROM windlass.history AS h
        WHERE h.id BETWEEN $2::uuid AND $3::uuid AND h.finished_at >= /* :since */
    )
