-- A page of the audit log, by id. Uses the primary key.
SELECT id::text, at, who, why, action, task_id::text, detail, subject
FROM windlass.audit
WHERE id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY audit.id
LIMIT $2
