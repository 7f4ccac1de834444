-- The tasks with these fingerprints that have not ended.
SELECT t.fingerprint, t.id::text
FROM windlass.task AS t
WHERE t.fingerprint = ANY ($1::text[]) AND t.fingerprint IS NOT NULL AND t.finished_at IS NULL
