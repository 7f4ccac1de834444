-- Tell tasks by their type, which is in the group of their row.
local TYPE = '^[^\31]*\31([^\31]*)'

-- Returns a function that keeps, of ids and ranks in turn, those of tasks of these types.
local function sieve(prefix, names)
    local wanted = {}
    for _, name in ipairs(names) do
        wanted[name] = true
    end
    return function(ranked)
        local ids, kept = {}, {}
        for position = 1, #ranked, 2 do
            ids[#ids + 1] = ranked[position]
        end
        for position, row in ipairs(rows_of(prefix, ids)) do
            if row and #row >= SHORTEST then
                local _, _, _, _, flags, _, group, _, _, at = struct.unpack(NUMBERS, row)
                local name = string.sub(row, at + (has(flags, EXPIRES) and 8 or 0), at + group - 1)
                if wanted[string.match(name, TYPE)] then
                    kept[#kept + 1] = ranked[2 * position - 1]
                    kept[#kept + 1] = ranked[2 * position]
                end
            end
        end
        return kept
    end
end
