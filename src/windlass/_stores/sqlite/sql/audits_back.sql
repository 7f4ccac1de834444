-- A page of the audit log by id, newest first. Uses the primary key.
SELECT id, at, who, why, action, task_id, detail, subject
FROM windlass_audit
WHERE :before IS NULL OR id < :before
ORDER BY id DESC
LIMIT :limit
