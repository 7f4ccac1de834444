-- No line is lost: what it is about goes to the front of its detail, and its task is one that cannot be.
UPDATE windlass.audit
SET detail = trim(subject || ' ' || detail), task_id = '00000000-0000-0000-0000-000000000000'
WHERE task_id IS NULL;
ALTER TABLE windlass.audit DROP COLUMN subject;
ALTER TABLE windlass.audit ALTER COLUMN task_id SET NOT NULL;
