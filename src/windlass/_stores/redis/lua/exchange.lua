-- Commit a unit of work, then claim. ARGV: now, prefix, a commit, what `claim` takes. Returns whether it was committed,
-- the time, the position of the guard that failed, and what `claim` returns.
@steady
@clock
@bulk
@memory
@row
@commit
@lease
@types
@claim
local now, prefix = clock(ARGV[1]), ARGV[2]
local at, failed = guarded(3)
if not at then
    return {0, whole(now), failed}
end
return {1, whole(now), 0, claim(apply(3, at), prefix, now)}
