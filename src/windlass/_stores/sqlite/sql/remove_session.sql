-- Forget a session; what it held is then anybody's to rescue. Uses the primary key.
DELETE FROM windlass_session
WHERE id = :name
