-- Delete a session; its tasks can then be rescued. Uses the primary key.
DELETE FROM windlass_session
WHERE id = :name
