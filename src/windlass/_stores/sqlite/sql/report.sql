-- Store the progress of a running task if its lease is still valid. Uses the unique index on id.
UPDATE windlass_task
SET progress_fraction = :fraction, progress_message = :message
WHERE id = :id AND fence = :fence AND state = 'running'
