-- Remove a queue's settings, but keep the row if it had stripes, lanes, a limit or ageing: tasks may be in them.
WITH narrowed AS (
    UPDATE windlass.queue AS q
    SET
        paused = false,
        stripes = 1,
        settings = NULL,
        opens_at = NULL,
        closes_at = NULL,
        laned_at = coalesce($2::timestamptz, clock_timestamp()),
        head_start = CASE WHEN q.head_start IS NOT NULL THEN $3::bigint END
    WHERE
        q.name = $1 AND (q.widest > 1 OR q.laned OR q.guarded OR q.head_start IS NOT NULL)
        AND q.settings IS NOT NULL
    RETURNING q.name
),

removed AS (
    DELETE FROM windlass.queue AS q
    WHERE
        q.name = $1 AND q.widest = 1 AND NOT q.laned AND NOT q.guarded AND q.head_start IS NULL
        AND q.settings IS NOT NULL
    RETURNING q.name
)

SELECT narrowed.name FROM narrowed
UNION ALL
SELECT removed.name FROM removed
