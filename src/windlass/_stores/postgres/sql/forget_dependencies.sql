-- They wait no more.
DELETE FROM windlass.dependency AS d
WHERE d.successor = ANY ($1::uuid[])
