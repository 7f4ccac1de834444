-- A commit: guards, then commands. From `at`: the number of guards, each a key's index, a field of that hash and its
-- value ('' for none); the number of commands, each the number of its arguments, its name, a key's index and the
-- arguments.

-- Check that nothing that was read has changed. Returns the position of the commands, or nil and the position of the
-- guard that failed.
local function guarded(at)
    local last = at + 3 * tonumber(ARGV[at])
    for guard = at + 1, last, 3 do
        local found = redis.call('HGET', KEYS[tonumber(ARGV[guard])], ARGV[guard + 1])
        if (found or '') ~= ARGV[guard + 2] then
            return nil, guard
        end
    end
    return last + 1
end

-- The position after the commands.
local function skip(at)
    local commands = tonumber(ARGV[at])
    at = at + 1
    for _ = 1, commands do
        at = at + 3 + tonumber(ARGV[at])
    end
    return at
end

-- Run the commands. Returns the position after them.
local function apply(at)
    local commands = tonumber(ARGV[at])
    at = at + 1
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
