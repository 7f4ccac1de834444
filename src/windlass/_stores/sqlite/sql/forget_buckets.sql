-- Delete the buckets of these permits. One lookup in the primary key per permit.
DELETE FROM windlass_bucket
WHERE key IN (SELECT value FROM json_each(:keys))
