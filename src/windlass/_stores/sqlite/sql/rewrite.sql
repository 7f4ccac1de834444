-- Replace the documents of a task if they are still the expected ones. Uses the unique index on id.
UPDATE windlass_task
SET payload = :payload, next = :next, result = :result
WHERE
    id = :id AND payload = :payload_before AND next IS :next_before AND result IS :result_before
