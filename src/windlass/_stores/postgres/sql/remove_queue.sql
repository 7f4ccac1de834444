-- Forget a queue's settings, but not that it had stripes: they may hold tasks.
WITH narrowed AS (
    UPDATE windlass.queue AS q
    SET paused = false, stripes = 1, settings = NULL
    WHERE q.name = $1 AND q.widest > 1 AND q.settings IS NOT NULL
    RETURNING q.name
),

removed AS (
    DELETE FROM windlass.queue AS q
    WHERE q.name = $1 AND q.widest = 1
    RETURNING q.name
)

SELECT narrowed.name FROM narrowed
UNION ALL
SELECT removed.name FROM removed
