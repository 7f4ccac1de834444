-- Check that nothing that was read has changed, then run commands. Returns the position after them, or nil
-- and the position of the first guard that failed. From `at`: the number of guards, each a key's index, a field
-- of that hash and its value ('' for none); the number of commands, each the number of its arguments, its name,
-- a key's index and the arguments.
local function commit(at)
    local last = at + 3 * tonumber(ARGV[at])
    for guard = at + 1, last, 3 do
        local found = redis.call('HGET', KEYS[tonumber(ARGV[guard])], ARGV[guard + 1])
        if (found or '') ~= ARGV[guard + 2] then
            return nil, guard
        end
    end
    local commands = tonumber(ARGV[last + 1])
    at = last + 2
    for _ = 1, commands do
        local arguments = tonumber(ARGV[at])
        local name, key = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
        at = at + 3
        if name == 'LEAVE' then
            -- A task leaves a place of its queue: id, index of the list of places, place.
            redis.call('ZREM', key, ARGV[at])
            if redis.call('EXISTS', key) == 0 then
                redis.call('ZREM', KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2])
            end
        else
            redis.call(name, key, unpack(ARGV, at, at + arguments - 1))
        end
        at = at + arguments
    end
    return at
end
