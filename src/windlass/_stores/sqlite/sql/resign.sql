-- Nobody leads.
DELETE FROM windlass_lead
