-- How many tasks match. The conditions of the filter take the place of "TRUE", the dimensions that of "1".
SELECT count(*), 1
FROM windlass_task AS task
WHERE TRUE
GROUP BY 2
