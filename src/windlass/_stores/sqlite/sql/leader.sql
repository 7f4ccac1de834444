-- Who leads, and until when. One row at most.
SELECT holder, until
FROM windlass_lead
