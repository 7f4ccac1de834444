-- Note how far a running task has come, if the lease still holds. Uses the unique index on id.
UPDATE windlass_task
SET progress_fraction = :fraction, progress_message = :message
WHERE id = :id AND fence = :fence AND state = 'running'
