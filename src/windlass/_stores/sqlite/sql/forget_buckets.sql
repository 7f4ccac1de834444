-- Forget the starts that are left under these permits. Uses the primary key, once a permit.
DELETE FROM windlass_bucket
WHERE key IN (SELECT value FROM json_each(:keys))
