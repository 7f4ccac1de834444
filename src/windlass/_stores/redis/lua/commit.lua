-- Commit a unit of work. ARGV: now, then a commit. Returns whether it was committed, the time, and the position of the
-- guard that failed.
@steady
@clock
@commit
local at, failed = guarded(2)
if at then
    apply(at)
end
return {at and 1 or 0, whole(clock(ARGV[1])), failed or 0}
