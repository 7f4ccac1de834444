-- Records of a kind, a page by name in the order of its bytes.
SELECT body
FROM windlass.record
WHERE kind = $3 AND ($1::text IS NULL OR name > $1)
ORDER BY name
LIMIT $2
