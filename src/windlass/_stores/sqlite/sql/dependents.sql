-- The tasks that wait for any of these, or need their results, with the task they wait for. One lookup in the primary key per id.
SELECT dependency.predecessor, dependency.successor
FROM json_each(:ids) AS given
CROSS JOIN windlass_dependency AS dependency ON dependency.predecessor = given.value
ORDER BY given.key
