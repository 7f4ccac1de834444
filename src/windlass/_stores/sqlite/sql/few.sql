-- How many tasks of a state there are, up to a limit. The state takes the place of "TRUE", with its index.
SELECT count(*)
FROM (SELECT 1 FROM windlass_task AS task WHERE TRUE LIMIT :limit)
