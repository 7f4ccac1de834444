-- For the rest of this transaction: the history's index of hours is one of blocks.
SET LOCAL enable_bitmapscan = on
