-- Whether a task waits for a task in the history that ended before this instant, which is kept until then.
-- LATERAL and OFFSET 0 make the planner look up what is awaited instead of scanning the history.
SELECT EXISTS (
    SELECT FROM windlass.dependency AS d
    CROSS JOIN LATERAL (
        SELECT FROM windlass.history AS h
        WHERE h.id = d.predecessor AND h.finished_at < $1::timestamptz
        OFFSET 0
    ) AS past
)
