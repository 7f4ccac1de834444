-- Which tasks have ended or do not exist. ARGV: prefix, ids. Returns their positions among the ids.
@steady
@bulk
@row
local OPEN, STATE_AT = {w = true, s = true, r = true, R = true}, 11 -- after version, fence and attempt
local ids, ended = {}, {}
for position = 2, #ARGV do
    ids[position - 1] = ARGV[position]
end
for position, row in ipairs(rows_of(ARGV[1], ids)) do
    if not row or not OPEN[string.sub(row, STATE_AT, STATE_AT)] then
        ended[#ended + 1] = position
    end
end
return ended
