-- The number of tasks that match in one table, when the first of them was due, and their sizes, by dimensions.
-- The length of a large value is known without reading it.
SELECT
    count(*),
    min(least(greatest(t.run_at, t.created_at), '9999-01-01 00:00:00+00')),
    coalesce(sum(/* :steps */), 0)::bigint,
    coalesce(
        sum(octet_length(t.payload) + coalesce(octet_length(t.result), 0) + coalesce(octet_length(t.next), 0)), 0
    )::bigint /* :dimensions */
FROM /* :table */ AS t
WHERE /* :conditions */
/* :group_by */
