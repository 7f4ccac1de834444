-- The starts that are left under these permits, and when that was so. Uses the primary key, once a permit.
SELECT bucket.key, bucket.tokens, bucket.at
FROM json_each(:keys) AS given
CROSS JOIN windlass_bucket AS bucket ON bucket.key = given.value
