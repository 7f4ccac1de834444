-- Facts that handlers keep with their attempts, as JSON.
ALTER TABLE windlass_attempt ADD COLUMN notes BLOB;
