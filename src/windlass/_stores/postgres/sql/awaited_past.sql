-- Whether a task in the history that ended before this is still waited for: it is kept until it is not.
-- LATERAL and OFFSET 0: what is waited for is looked up, and not the history gone through.
SELECT EXISTS (
    SELECT FROM windlass.dependency AS d
    CROSS JOIN LATERAL (
        SELECT FROM windlass.history AS h
        WHERE h.id = d.predecessor AND h.finished_at < $1::timestamptz
        OFFSET 0
    ) AS past
)
