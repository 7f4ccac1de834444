-- Whether a queue has a ready task of a priority other than 0. Uses windlass_task_level, one lookup for each sign.
SELECT EXISTS (
    SELECT 1
    FROM windlass_task
    WHERE
        queue = :queue AND state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '')
        AND (priority > 0) - (priority < 0) = 1
) OR EXISTS (
    SELECT 1
    FROM windlass_task
    WHERE
        queue = :queue AND state = 'ready' AND (priority <> 0 OR lane <> '' OR key <> '')
        AND (priority > 0) - (priority < 0) = -1
)
