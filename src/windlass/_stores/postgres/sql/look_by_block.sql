-- For the rest of this transaction: the history's hours are found by blocks, or by going through a day.
SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'on', true)
