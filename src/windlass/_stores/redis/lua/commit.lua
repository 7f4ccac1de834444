-- Commit a unit of work. ARGV: now, then what `commit` takes. Returns whether it was committed, and the time.
@steady
@clock
@commit
local at, failed = commit(2)
return {at and 1 or 0, whole(clock(ARGV[1])), failed or 0}
