-- Which of these tasks others wait for, and which those are. Uses the primary key, once an id.
SELECT dependency.predecessor, dependency.successor
FROM json_each(:ids) AS given
CROSS JOIN windlass_dependency AS dependency ON dependency.predecessor = given.value
ORDER BY given.key
