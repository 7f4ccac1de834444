-- Copy the tasks of one day's partition that others need to the table that is to replace it.
INSERT INTO windlass./* :partition */_kept
SELECT h.*
FROM windlass./* :partition */ AS h
WHERE h.id IN (SELECT d.predecessor FROM windlass.dependency AS d)
