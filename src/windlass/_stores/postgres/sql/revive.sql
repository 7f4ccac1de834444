-- Move cancelled tasks back from the history; update_tasks.sql then writes their new state.
WITH revived AS (
    DELETE FROM windlass.history AS h
    WHERE h.id = ANY ($1::uuid[]) AND h.state = 'cancelled'
    RETURNING h.*
)

INSERT INTO windlass.task (/* :fixed_columns */, run_at, fence, duration, attempt, worker, state, rank)
SELECT /* :revived_columns */, r.run_at, r.fence, r.duration, r.attempt, r.worker, 'ready', 0
FROM revived AS r
