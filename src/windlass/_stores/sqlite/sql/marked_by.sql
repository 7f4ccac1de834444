-- The fence under which a key was marked. Uses the primary key.
SELECT fence
FROM windlass_once
WHERE task_id = :id AND key = :key
