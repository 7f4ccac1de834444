-- Keep every entry: its subject is prefixed to its detail, and its task id is one that no task has.
UPDATE windlass.audit
SET detail = trim(subject || ' ' || detail), task_id = '00000000-0000-0000-0000-000000000000'
WHERE task_id IS NULL;
ALTER TABLE windlass.audit DROP COLUMN subject;
ALTER TABLE windlass.audit ALTER COLUMN task_id SET NOT NULL;
