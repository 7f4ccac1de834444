-- The number of tasks of a state, counted up to a limit. Uses the partial index of the state.
SELECT count(*)
FROM (SELECT 1 FROM windlass_task AS task /* :index */ WHERE /* :conditions */ LIMIT :limit)
