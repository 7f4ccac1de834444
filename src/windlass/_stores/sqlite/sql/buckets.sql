-- The starts that rate limits have left under these permits, and when they were computed. One lookup in the
-- primary key per permit.
SELECT bucket.key, bucket.tokens, bucket.at
FROM json_each(:keys) AS given
CROSS JOIN windlass_bucket AS bucket ON bucket.key = given.value
