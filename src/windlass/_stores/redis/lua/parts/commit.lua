-- A commit: tasks, guards, then commands. From `at`: the number of tasks, whose rows are the keys after the first, each
-- its version ('' if there is no such task) and its new row ('' if that does not change); the number of guards, each a
-- key's index, a field of that hash and its value ('' for none); the number of commands, each the number of its
-- arguments, its name, a key's index and the arguments.

-- Check that nothing that was read has changed. Returns the position of the commands, or nil and the position of the
-- guard that failed.
local function guarded(at)
    local tasks = tonumber(ARGV[at])
    for first = 1, tasks, MOST do
        local last = math.min(first + MOST - 1, tasks)
        for position, row in ipairs(redis.call('MGET', unpack(KEYS, 1 + first, 1 + last))) do
            local version = at + 2 * (first + position) - 3
            if (row and string.sub(row, 1, @version) or '') ~= ARGV[version] then
                return nil, version
            end
        end
    end
    local guards = at + 1 + 2 * tasks
    local last = guards + 3 * tonumber(ARGV[guards])
    for guard = guards + 1, last, 3 do
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

-- The ids of a run of tasks of the commit, after the score if there is one.
local function add_run(members, first, last, score)
    local from = #KEYS[1] - #'meta' + #'t:' + 1
    for task = tonumber(first), tonumber(last) do
        if score then
            members[#members + 1] = score
        end
        members[#members + 1] = string.sub(KEYS[1 + task], from)
    end
end

-- Commands of our own, with arguments from `at` to `last`.
local OWN = {
    -- Add tasks of the commit to a sorted set: runs, each a score, the position of the first task and of the last.
    FILE = function(key, at, last)
        local members = {}
        for run = at, last, 3 do
            add_run(members, ARGV[run + 1], ARGV[run + 2], ARGV[run])
        end
        in_parts('ZADD', key, members)
    end,
    -- Remove tasks of the commit from a set or hash: the command, then runs, each two positions.
    DROP = function(key, at, last)
        local members = {}
        for run = at + 1, last, 2 do
            add_run(members, ARGV[run], ARGV[run + 1])
        end
        in_parts(ARGV[at], key, members)
    end,
    -- Delete keys: the indexes of all but the first.
    DELETE = function(key, at, last)
        local keys = {key}
        for position = at, last do
            keys[#keys + 1] = KEYS[tonumber(ARGV[position])]
        end
        for first = 1, #keys, MOST do
            redis.call('DEL', unpack(keys, first, math.min(first + MOST - 1, #keys)))
        end
    end,
    -- A task leaves a place of its queue: id, index of the list of places, place.
    LEAVE = function(key, at)
        redis.call('ZREM', key, ARGV[at])
        if redis.call('EXISTS', key) == 0 then
            redis.call('ZREM', KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2])
        end
    end
}

-- Write the rows of the commit at `from`, and run its commands. Returns the position after them.
local function apply(from, at)
    local rows, adds_tasks = {}, false
    for task = 1, tonumber(ARGV[from]) do
        local version, row = ARGV[from + 2 * task - 1], ARGV[from + 2 * task]
        if row ~= '' then
            rows[#rows + 1] = KEYS[1 + task]
            rows[#rows + 1] = row
            adds_tasks = adds_tasks or version == ''
        end
    end
    if not adds_tasks then
        allow_full_memory()
    end
    set_all(rows)
    local commands = tonumber(ARGV[at])
    at = at + 1
    for _ = 1, commands do
        local arguments = tonumber(ARGV[at])
        local name, key = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
        at = at + 3
        if OWN[name] then
            OWN[name](key, at, at + arguments - 1)
        else
            redis.call(name, key, unpack(ARGV, at, at + arguments - 1))
        end
        at = at + arguments
    end
    return at
end
