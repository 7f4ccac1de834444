-- Take or renew the lead.
INSERT OR REPLACE INTO windlass_lead (only, holder, until)
VALUES (1, :holder, :until)
