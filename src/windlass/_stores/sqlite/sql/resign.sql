-- Give up the lead.
DELETE FROM windlass_lead
