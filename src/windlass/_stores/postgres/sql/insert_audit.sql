-- Add entries to the audit log.
INSERT INTO windlass.audit (id, at, who, why, action, task_id, detail, subject)
SELECT g.*
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[]
) AS g
