-- Whether a task in the history that ended before this is still waited for: it is kept until it is not.
SELECT EXISTS (
    SELECT FROM windlass.dependency AS d
    INNER JOIN windlass.history AS h ON d.predecessor = h.id AND h.finished_at < $1::timestamptz
)
