-- A page of the audit log by id. Uses the primary key.
SELECT id, at, who, why, action, task_id, detail, subject
FROM windlass_audit
WHERE id > :after
ORDER BY id
LIMIT :limit
