-- The row of a task: numbers of fixed width, then the group, the session, the worker, the permits, the progress, and
-- what only clients read. See rows.py.
local NUMBERS, SHORTEST = '@numbers', struct.size('@numbers')
local RUNNING, CANCEL, OUTSIDE = 'R', 1, 2 -- a state, and flags

local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

-- Read the rows of tasks; false for those that do not exist.
local function rows_of(prefix, ids)
    local rows = {}
    for first = 1, #ids, MOST do
        local keys = {}
        for position = first, math.min(first + MOST - 1, #ids) do
            keys[#keys + 1] = prefix .. 't:' .. ids[position]
        end
        for _, row in ipairs(redis.call('MGET', unpack(keys))) do
            rows[#rows + 1] = row
        end
    end
    return rows
end

-- The document of a task if it has a key of its own, else nil.
local function document_of(prefix, id, flags)
    return has(flags, OUTSIDE) and redis.call('GET', prefix .. 'd:' .. id) or nil
end

-- State, fence and flags of a task; nil if it does not exist or is damaged.
local function state_of(row)
    if not row or #row < SHORTEST then
        return nil
    end
    local _, fence, _, state, flags = struct.unpack(NUMBERS, row)
    return state, fence, flags
end

-- The session of a row, and the row after a session took it over.
local function taken_over(row, by)
    local version, fence, attempt, state, flags, due, expires, claimed, group, session, worker, permits, progress,
        changing, at = struct.unpack(NUMBERS, row)
    return string.sub(row, at + group, at + group + session - 1),
        struct.pack(NUMBERS, version + 1, fence + 1, attempt, state, flags, due, expires, claimed, group, #by, worker,
            permits, progress, changing) .. string.sub(row, at, at + group - 1) .. by ..
            string.sub(row, at + group + session)
end

-- The row with another progress.
local function with_progress(row, new)
    local version, fence, attempt, state, flags, due, expires, claimed, group, session, worker, permits, progress,
        changing, at = struct.unpack(NUMBERS, row)
    local before = at + group + session + worker + permits
    return struct.pack(NUMBERS, version + 1, fence, attempt, state, flags, due, expires, claimed, group, session, worker,
        permits, #new, changing) .. string.sub(row, at, before - 1) .. new .. string.sub(row, before + progress)
end
