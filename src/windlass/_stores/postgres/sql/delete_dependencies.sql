-- Delete what these tasks wait for, or need the results of.
DELETE FROM windlass.dependency AS d
WHERE d.successor = ANY ($1::uuid[])
