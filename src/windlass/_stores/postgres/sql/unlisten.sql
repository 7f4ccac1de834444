-- Nobody waits here any more. Names that nobody renewed go as well.
DELETE FROM windlass.listener AS l
WHERE l.id = $1 OR l.until < clock_timestamp()
