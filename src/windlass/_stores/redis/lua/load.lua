-- Read tasks. ARGV: prefix, ids. Returns each task's row and its document if that has a key of its own; nothing for
-- those that do not exist.
@steady
@bulk
@row
local prefix, found, ids = ARGV[1], {}, {}
for position = 2, #ARGV do
    ids[position - 1] = ARGV[position]
end
for position, row in ipairs(rows_of(prefix, ids)) do
    local _, _, flags = state_of(row)
    found[position] = {row, flags and document_of(prefix, ids[position], flags)}
end
return found
