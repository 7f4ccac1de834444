-- Allow scans for the rest of the transaction: the history is searched by blocks, or a day is read whole.
SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'on', true)
