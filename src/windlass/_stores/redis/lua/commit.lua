-- Commit a unit of work. ARGV: now, then a commit. Returns whether it was committed, the time, and the position of the
-- guard that failed.
@steady
@clock
@bulk
@memory
@commit
local at, failed = guarded(2)
if at then
    apply(2, at)
end
return {at and 1 or 0, whole(clock(ARGV[1])), failed or 0}
