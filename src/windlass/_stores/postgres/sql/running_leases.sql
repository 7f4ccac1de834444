-- Those of these tasks that run, with their fences.
SELECT t.id::text, t.fence, t.claim_number, t.cancel_requested, t.cancelled_by, t.cancel_reason
FROM windlass.task AS t
WHERE t.id = ANY ($1::uuid[]) AND t.state IS NOT DISTINCT FROM 'running'
