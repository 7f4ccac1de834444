-- A page of the audit log by id, newest first. Uses the primary key.
SELECT id::text, at, who, why, action, task_id::text, detail, subject
FROM windlass.audit
WHERE audit.id <= coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND audit.id IS DISTINCT FROM $1::uuid
ORDER BY audit.id DESC
LIMIT $2
