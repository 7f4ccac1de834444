-- The task types that programs have published.
SELECT body
FROM windlass_record
WHERE kind = 'type'
