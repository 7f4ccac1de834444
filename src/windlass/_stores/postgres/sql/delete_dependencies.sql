-- Delete what these tasks wait for.
DELETE FROM windlass.dependency AS d
WHERE d.successor = ANY ($1::uuid[])
